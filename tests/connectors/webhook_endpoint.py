"""A receiver under test: a real HTTP server that does what it is told to, and remembers what came."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

from headrace.connectors.webhook import WebhookConnector
from headrace.model.columns import extract
from headrace.model.materializations import Binding
from headrace.testing.endpoint import EndpointUnderTest


@dataclass
class Received:
    """A request, and whether the receiver took it for good."""

    target: str
    headers: Mapping[str, str]
    raw: bytes
    taken: bool = True
    body: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        encoded = self.headers.get("content-encoding") == "gzip"
        self.body = json.loads(gzip.decompress(self.raw) if encoded else self.raw)

    @property
    def key(self) -> str:
        return self.headers["idempotency-key"]

    @property
    def documents(self) -> list[dict[str, Any]]:
        documents: list[dict[str, Any]] = self.body["documents"]
        return documents


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): ", ".join(self.headers.get_all(name, [])) for name in self.headers}
        self.server.receiver.receive(self, Received(self.path, headers, raw))

    def answer(self, status: int, body: bytes = b"{}", **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


Behaviour = Callable[[Handler, Received], None]


def answers(status: int, body: bytes = b"{}", **headers: str) -> Behaviour:
    def behave(handler: Handler, received: Received) -> None:
        received.taken = 200 <= status < 300
        handler.answer(status, body, **headers)

    return behave


def takes_and_closes(handler: Handler, received: Received) -> None:
    """It has stored the request, and dies before it says so."""
    handler.close_connection = True


def takes_and_breaks_off(handler: Handler, received: Received) -> None:
    """It dies in the middle of its answer."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100")
    handler.end_headers()
    handler.wfile.write(b"half of")
    handler.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    receiver: Receiver

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or that did not like the certificate, is part of the tests."""


class Receiver:
    """Answers 200 to everything, but for the first requests what `script` says."""

    def __init__(self, script: Iterable[Behaviour] = (), tls: ssl.SSLContext | None = None) -> None:
        self.script = deque(script)
        self.received: list[Received] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), self._handler(), bind_and_activate=True)
        self._server.receiver = self
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_address[1]
        self.address = f"http://127.0.0.1:{self.port}"
        self.closing = threading.Event()
        """For behaviours that hang until the test ends."""

    def _handler(self) -> type[Handler]:
        receiver = self

        class Counting(Handler):
            def setup(self) -> None:
                super().setup()
                receiver.connections += 1

        return Counting

    def receive(self, handler: Handler, received: Received) -> None:
        with self._lock:
            behave = self.script.popleft() if self.script else answers(200)
            self.received.append(received)
        behave(handler, received)

    @property
    def keys(self) -> list[str]:
        return [received.key for received in self.received]

    def stored(self, resource: str) -> list[dict[str, Any]]:
        """What a receiver that minds the keys holds of a resource, in the order that it came."""
        by_key: dict[str, Received] = {}
        for received in self.received:
            if received.taken and received.body["resource"] == resource:
                first = by_key.setdefault(received.key, received)
                assert received.raw == first.raw, "one key, two contents"
        return [document for received in by_key.values() for document in received.documents]

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()


class WebhookEndpointUnderTest(EndpointUnderTest):
    keeps_checkpoints = False

    def __init__(self, receiver: Receiver) -> None:
        self.connector = WebhookConnector()
        self.endpoint_type = "webhook"
        self.receiver = receiver
        self.config = {"address": f"{receiver.address}/hooks", "retry_for": 5}

    def resource(self, name: str, delta_updates: bool = True) -> Mapping[str, Any]:
        return {"path": name}

    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        (path,) = binding.resource_path
        for received in self.receiver.received:
            assert unquote(urlsplit(received.target).path) == f"/hooks/{received.body['resource']}"
        documents = self.receiver.stored(path)
        keys = extract(binding.keys, documents).to_pylist()
        assert binding.document is not None
        return [{**key, binding.document: document} for key, document in zip(keys, documents, strict=True)]
