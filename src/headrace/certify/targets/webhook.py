"""A webhook's receiver that remembers all that it was sent, and minds no idempotency keys."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import orjson

from headrace.certify.documents import Document
from headrace.certify.proxy import Proxy
from headrace.certify.targets.target import APPEND, Place, Rows, Target

_LOOK_EVERY = 0.05


class WebhookTarget(Target):
    """Delivers at least once: a replay comes twice."""

    name = "webhook"
    is_atomic: ClassVar[bool] = False
    is_loaded: ClassVar[bool] = False
    says_owner: ClassVar[bool] = False

    def __init__(self) -> None:
        self._server: _Server | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        with _Server() as server, Proxy("127.0.0.1", server.server_address[1]) as self.proxy:
            self._server = server
            serving = threading.Thread(target=server.serve_forever, args=(_LOOK_EVERY,), daemon=True)
            serving.start()
            try:
                yield
            finally:
                server.shutdown()
                serving.join()

    def place(self, lane: str) -> Place:
        assert self.proxy is not None, "a receiver has an address only while it runs"
        config = {"address": f"http://{self.proxy.address}"}
        return Place({"connector": "webhook", "config": config}, {"resource": {"path": lane}})

    def read(self, lane: str) -> Mapping[str, Rows]:
        return {APPEND: Rows(self._running.received(lane), is_view=False)}

    def remove(self, lane: str) -> None:
        self._running.forget(lane)

    @property
    def _running(self) -> _Server:
        assert self._server is not None, "a receiver has an address only while it runs"
        return self._server


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        body = orjson.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.take(self.path.strip("/"), body["documents"])
        self.send_response(HTTPStatus.NO_CONTENT)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self._received: defaultdict[str, list[Document]] = defaultdict(list)
        self._lock = threading.Lock()

    def take(self, lane: str, documents: list[Document]) -> None:
        with self._lock:
            self._received[lane] += documents

    def received(self, lane: str) -> list[Document]:
        """In the order that they came."""
        with self._lock:
            return list(self._received[lane])

    def forget(self, lane: str) -> None:
        with self._lock:
            self._received.pop(lane, None)

    def handle_error(self, *_: object) -> None:
        """A sender that is killed is what this is for."""
