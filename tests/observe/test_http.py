"""The HTTP port, over real sockets."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.errors import ConfigError
from headrace.observe import http as observe_http
from headrace.observe.http import ObserveServer
from headrace.observe.metrics import metrics_registry
from tests.observe.scripted import ScriptedServer
from tests.waiting import DEADLINE_SECONDS, wait_until


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps a slow machine from causing time-outs, and lets servers stop without a pause."""
    monkeypatch.setattr(observe_http, "_IDLE_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(observe_http, "_LONGEST_SECONDS", DEADLINE_SECONDS)
    monkeypatch.setattr(observe_http, "_LOOK_EVERY_SECONDS", 0.005)


@pytest.fixture
def server() -> ScriptedServer:
    return ScriptedServer()


@pytest.fixture
def observed(server: ScriptedServer) -> Iterator[ObserveServer]:
    with running(ObserveServer(server, metrics_registry(server))) as observe:
        yield observe


@contextmanager
def running(observe: ObserveServer) -> Iterator[ObserveServer]:
    observe.start()
    try:
        yield observe
    finally:
        observe.stop()


def ask(
    at: ObserveServer, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=DEADLINE_SECONDS)
    try:
        connection.request(method, path, headers=headers or {})
        response = connection.getresponse()
        return response, response.read()
    finally:
        connection.close()


def said(at: ObserveServer, request: bytes) -> bytes:
    """Everything that comes until the server hangs up."""
    with socket.create_connection(("127.0.0.1", at.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(4096):
            answer += part
    return answer


def page(at: ObserveServer, path: str, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
    response, body = ask(at, path, headers=headers)
    assert response.headers["Content-Type"] == "application/json"
    return response.status, json.loads(body)


def test_metrics(observed: ObserveServer) -> None:
    response, body = ask(observed, "/metrics?x=1")
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(body.decode())}
    assert {"headrace_flight_writes", "process_cpu_seconds"} <= names


def test_metrics_in_the_form_that_prometheus_asks_for(observed: ObserveServer) -> None:
    wanted = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    response, body = ask(observed, "/metrics", headers={"ACCEPT": wanted})
    assert response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert body.endswith(b"# EOF\n")


def test_well(observed: ObserveServer) -> None:
    assert page(observed, "/healthz") == (200, {"status": "ok", "problems": []})
    status, shown = page(observed, "/readyz")
    assert status == 200
    assert shown["status"] == "ok"
    assert shown["accepts_writes"] is True
    assert shown["watermarks"]["OBJECT_STORAGE"] == 950
    assert "sessions" not in shown  # who the clients are is nobody's business


def test_slow_but_accepting(server: ScriptedServer, observed: ObserveServer) -> None:
    server.problems = ["store s3://x cannot put segment 4"]
    status, shown = page(observed, "/readyz")
    assert (status, shown["status"], shown["problems"]) == (200, "degraded", server.problems)
    assert page(observed, "/healthz")[0] == 200


def test_alive_but_not_ready(server: ScriptedServer, observed: ObserveServer) -> None:
    server.accepts_writes = False
    server.problems = ["the disk is full"]
    status, shown = page(observed, "/readyz")
    assert (status, shown["status"], shown["problems"]) == (503, "refusing", ["the disk is full"])
    assert page(observed, "/healthz")[0] == 200


def test_dead(server: ScriptedServer, observed: ObserveServer) -> None:
    server.fatal = "another server took over the log"
    assert page(observed, "/healthz") == (503, {"status": "failed", "problems": [server.fatal]})


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_head_is_get_without_the_body(observed: ObserveServer, path: str) -> None:
    got, _ = ask(observed, path)
    head, _ = ask(observed, path, "HEAD")
    assert head.status == 200
    assert head.headers["Content-Type"] == got.headers["Content-Type"]
    assert int(head.headers["Content-Length"]) > 0
    # The library reads no body after HEAD, even if there is one.
    assert said(observed, f"HEAD {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_methods_that_are_not_allowed(observed: ObserveServer, method: str) -> None:
    response, _ = ask(observed, "/metrics", method)
    assert (response.status, response.headers["Allow"]) == (405, "GET, HEAD")
    assert ask(observed, "/nosuch", method)[0].status == 404


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/../metrics", "//metrics/x"])
def test_other_paths(observed: ObserveServer, path: str) -> None:
    assert page(observed, path) == (404, {"error": "there is /metrics, /healthz, /readyz"})


def test_one_request_a_connection(observed: ObserveServer) -> None:
    answer = said(observed, b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 200")
    assert b"Python" not in answer


@pytest.mark.parametrize(
    "garbage", [b"\x00\xff" * 1000, b"GET\r\n\r\n", b"GET / HTTP/9\r\n\r\n", b"GET /" + b"a" * 70_000]
)
def test_garbage(observed: ObserveServer, garbage: bytes) -> None:
    with socket.create_connection(("127.0.0.1", observed.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(garbage)
        connection.shutdown(socket.SHUT_WR)
        try:
            while connection.recv(4096):
                pass
        except ConnectionResetError:
            pass
    assert page(observed, "/healthz")[0] == 200


def test_a_page_that_fails(
    server: ScriptedServer, observed: ObserveServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.lags = {}
    response, body = ask(observed, "/metrics")
    assert (response.status, json.loads(body)) == (500, {"error": "see the server's log"})
    assert "KeyError" in caplog.text
    assert page(observed, "/healthz")[0] == 200


def test_who_says_nothing_is_hung_up_on(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe_http, "_IDLE_SECONDS", 0.2)
    with (
        running(ObserveServer(server, metrics_registry(server))) as observe,
        socket.create_connection(("127.0.0.1", observe.port), timeout=DEADLINE_SECONDS) as connection,
    ):
        assert connection.recv(1) == b""


def test_who_speaks_slowly_is_hung_up_on(server: ScriptedServer) -> None:
    now = [1000.0]
    observe = ObserveServer(server, metrics_registry(server), clock=lambda: now[0])
    with (
        running(observe),
        socket.create_connection(("127.0.0.1", observe.port), timeout=DEADLINE_SECONDS) as connection,
    ):
        for _ in range(3):  # sends a little each time, within the time-out
            connection.sendall(b"x")
            wait_until(lambda: observe._http._open, "the connection")
            now[0] += DEADLINE_SECONDS / 2
        with suppress(ConnectionResetError):
            assert connection.recv(1) == b""


def test_connections_are_bounded(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe_http, "_MOST_CONNECTIONS", 2)
    with running(ObserveServer(server, metrics_registry(server))) as observe:
        held = [
            socket.create_connection(("127.0.0.1", observe.port), timeout=DEADLINE_SECONDS) for _ in range(3)
        ]
        assert held[0].recv(1) == b""  # hung up on as soon as somebody else comes
        held[2].sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert held[2].recv(12) == b"HTTP/1.0 200"
        for connection in held:
            connection.close()
        wait_until(lambda: not observe._http._open, "free places")
        assert page(observe, "/healthz")[0] == 200


def test_idle_connections_do_not_starve_a_probe(observed: ObserveServer) -> None:
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(
                socket.create_connection(("127.0.0.1", observed.port), timeout=DEADLINE_SECONDS)
            )
            assert page(observed, "/readyz")[0] == 200


def test_a_slow_page_holds_up_nobody_else(server: ScriptedServer, observed: ObserveServer) -> None:
    waits, release = Event(), Event()

    class Slow(dict[Any, float]):
        def __missing__(self, _: Any) -> float:
            waits.set()
            assert release.wait(DEADLINE_SECONDS)
            return 0.0

    server.lags = Slow()
    with socket.create_connection(("127.0.0.1", observed.port), timeout=DEADLINE_SECONDS) as connection:
        connection.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert waits.wait(DEADLINE_SECONDS)
        assert page(observed, "/healthz")[0] == 200
        release.set()
        assert connection.recv(12) == b"HTTP/1.0 200"


def test_what_cannot_be(server: ScriptedServer, observed: ObserveServer, tmp_path: Path) -> None:
    registry = metrics_registry(server)
    with pytest.raises(
        ConfigError, match=rf"cannot serve metrics on 127.0.0.1:{observed.port}: Address already"
    ):
        ObserveServer(server, registry, port=observed.port)
    with pytest.raises(ConfigError, match=r"TLS files .*nosuch"):
        ObserveServer(server, registry, certificate=tmp_path / "nosuch", key=tmp_path / "nosuch")


def test_ipv6(server: ScriptedServer) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    with (
        running(ObserveServer(server, metrics_registry(server), "::1")) as observe,
        socket.create_connection(("::1", observe.port), timeout=DEADLINE_SECONDS) as connection,
    ):
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.0 200"


def test_stopped_means_stopped(server: ScriptedServer) -> None:
    observe = ObserveServer(server, metrics_registry(server))
    observe.stop()  # never started
    observe = ObserveServer(server, metrics_registry(server))
    observe.start()
    observe.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", observe.port), timeout=DEADLINE_SECONDS)
