"""Serves `/metrics`, `/healthz` and `/readyz` over HTTP, for machines that ask every few seconds."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

from headrace.errors import ConfigError, HeadraceError
from headrace.observe.source import Observed

log = logging.getLogger(__name__)

_IDLE_SECONDS = 5.0
_LONGEST_SECONDS = 15.0
_MOST_CONNECTIONS = 32
_LOOK_EVERY_SECONDS = 0.2
_JSON = "application/json"

Answer = tuple[HTTPStatus, str, bytes]


class ObserveServer:
    """Listens as soon as it is created. `authorize(headers)` raises for a caller who may not see details;
    whether the server is alive and ready is no secret, and probes send no token."""

    def __init__(
        self,
        server: Observed,
        registry: CollectorRegistry,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        authorize: Callable[[Mapping[str, str]], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        tls = _tls_context(certificate, key) if certificate is not None else None
        try:
            self._http = _HttpServer(host, port, _Pages(server, registry, authorize), tls, clock)
        except OSError as error:
            raise ConfigError(f"cannot serve metrics on {host}:{port}: {error.strerror or error}") from None
        self._thread = Thread(
            target=self._http.serve_forever, args=(_LOOK_EVERY_SECONDS,), name="observe", daemon=True
        )

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._http.shutdown()
            self._thread.join()
        self._http.server_close()


class _Pages:
    """The answers to requests, independent of the transport."""

    def __init__(
        self,
        server: Observed,
        registry: CollectorRegistry,
        authorize: Callable[[Mapping[str, str]], object] | None,
    ) -> None:
        self._server, self._registry, self._authorize = server, registry, authorize
        self.known = {"/metrics": self._metrics, "/healthz": self._alive, "/readyz": self._ready}

    def _metrics(self, headers: Mapping[str, str]) -> Answer:
        refusal = self._refusal(headers)
        if refusal is not None:
            return _json(HTTPStatus.UNAUTHORIZED, {"error": refusal.message})
        encode, content_type = choose_encoder(headers.get("accept", ""))
        return HTTPStatus.OK, content_type, encode(self._registry)

    def _alive(self, headers: Mapping[str, str]) -> Answer:
        fatal = self._server.fatal
        problems = {"problems": [fatal] if fatal else []} if self._refusal(headers) is None else {}
        return _json(_status(not fatal), {"status": "failed" if fatal else "ok", **problems})

    def _ready(self, headers: Mapping[str, str]) -> Answer:
        health = self._server.health()
        shown = {"status": health["status"], "accepts_writes": health["accepts_writes"]}
        if self._refusal(headers) is None:
            shown |= {name: health[name] for name in ("problems", "term", "epoch", "watermarks")}
        return _json(_status(health["accepts_writes"]), shown)

    def _refusal(self, headers: Mapping[str, str]) -> HeadraceError | None:
        if self._authorize is None:
            return None
        try:
            self._authorize(headers)
        except HeadraceError as error:
            return error
        return None


class _HttpServer(ThreadingHTTPServer):
    """Takes a bounded number of connections, each for a bounded time."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 16

    def __init__(
        self, host: str, port: int, pages: _Pages, tls: ssl.SSLContext | None, clock: Callable[[], float]
    ) -> None:
        self.pages = pages
        self._tls, self._clock = tls, clock
        self._open: dict[socket.socket, float] = {}
        self._lock = Lock()
        if ":" in host:
            self.address_family = socket.AF_INET6
        super().__init__((host.strip("[]"), port), _Handler)

    def server_bind(self) -> None:
        # HTTPServer's own would ask a name server for the host's name.
        TCPServer.server_bind(self)

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = self.socket.accept()
        connection.settimeout(_IDLE_SECONDS)
        if self._tls is not None:
            # The handshake comes with the first read, on the connection's own thread.
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def verify_request(self, request: Any, _address: Any) -> bool:
        """Makes room by closing the oldest connection: a probe is answered at once, so a client that keeps
        its connection has nothing to ask."""
        with self._lock:
            crowded = len(self._open) >= _MOST_CONNECTIONS
            oldest = next(iter(self._open)) if crowded else None
            if oldest is not None:
                del self._open[oldest]
            self._open[request] = self._clock()
        if oldest is not None:
            _hang_up(oldest)
        return True

    def service_actions(self) -> None:
        """Called several times a second: closes connections that take too long."""
        late = self._clock() - _LONGEST_SECONDS
        with self._lock:
            overdue = [connection for connection, since in self._open.items() if since < late]
        for connection in overdue:
            _hang_up(connection)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, _request: Any, address: Any) -> None:
        log.debug("a request of %s failed", address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.0: one request per connection."""

    server: _HttpServer
    server_version = "headrace"
    sys_version = ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        page = self.server.pages.known.get(path)
        if page is None:
            known = ", ".join(self.server.pages.known)
            self._answer(*_json(HTTPStatus.NOT_FOUND, {"error": f"there is {known}"}))
            return
        if self.command not in ("GET", "HEAD"):
            self._answer(*_json(HTTPStatus.METHOD_NOT_ALLOWED, {"error": "GET or HEAD"}), allow="GET, HEAD")
            return
        try:
            answer = page({name.lower(): value for name, value in self.headers.items()})
        except Exception:
            log.exception("%s failed", path)
            answer = _json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "see the server's log"})
        self._answer(*answer)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_GET  # noqa: N815

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes, allow: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if allow:
            self.send_header("Allow", allow)
        if status == HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        log.debug(format, *args)


def _status(good: bool) -> HTTPStatus:
    return HTTPStatus.OK if good else HTTPStatus.SERVICE_UNAVAILABLE


def _json(status: HTTPStatus, value: dict[str, Any]) -> Answer:
    return status, _JSON, json.dumps(value).encode() + b"\n"


def _tls_context(certificate: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"TLS files {certificate} and {key}: {error.strerror or error}") from None
    return context


def _hang_up(connection: socket.socket) -> None:
    try:
        # Below TLS: its own thread may be in the middle of a read.
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
    except OSError:
        log.debug("the other side was faster")
