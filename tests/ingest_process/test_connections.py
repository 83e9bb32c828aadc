"""Clients come in crowds and die in crowds: all who speak are served, and nothing is left of those who go."""

from __future__ import annotations

import resource
import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa
import pytest

from tests.ingest_process.serving import Serving, rows, write_all
from tests.ingest_process.wire import (
    PREFACE,
    connect,
    data,
    descriptor,
    flight_data,
    grpc_message,
    headers,
    ipc_messages,
    settings,
)
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

CROWD, MORE, DYING = 1_000, 400, 200
AT_FIRST = 1_024
"""How many descriptors a process may have open on most systems, if it does not ask for more."""
HELLO = PREFACE + settings()
_HEADERS, _END_STREAM = 1, 1


def stream() -> bytes:
    """Everything that a client sends who makes one write, and wants to know only that it was taken."""
    (schema, _), (header, body) = ipc_messages(pa.table({"id": [1]}))
    messages = [
        flight_data(to=descriptor(b"streaming_write", b"crowd"), header=schema),
        flight_data(metadata=b'{"levels": ["MEMORY"]}'),
        flight_data(header=header, body=body),
    ]
    return HELLO + headers(1) + data(1, b"".join(map(grpc_message, messages)))


@pytest.fixture(scope="module", autouse=True)
def _descriptors() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    def few_descriptors() -> None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (AT_FIRST, most))

    data_folder = tmp_path_factory.mktemp("server") / "data"
    config = {"ingest": {"commit_interval": "1h"}}
    with Serving(data_folder, config=config, before_exec=few_descriptors) as serving:
        with serving.client() as client:
            write_all(client, "warm_up", [rows(1)])
        # The committer opens files until it is.
        wait_until(lambda: serving.action("health")["status"] == "ok", "a server that is ready")
        yield serving


def ends_of_streams(connections: list[socket.socket]) -> Iterator[socket.socket]:
    """Yields each connection whose stream was ended by the server, when all that comes before it was read."""
    unread = dict.fromkeys(connections, b"")
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_READ)
        while unread:
            ready = selector.select(DEADLINE_SECONDS)
            assert ready, f"{len(unread)} streams did not end"
            for key, _ in ready:
                heard = key.fileobj
                assert isinstance(heard, socket.socket)
                said = heard.recv(65_536)
                assert said, "the server hung up"
                unread[heard] += said
                if _has_ended(unread[heard]):
                    selector.unregister(heard)
                    del unread[heard]
                    yield heard


def _has_ended(said: bytes) -> bool:
    at = 0
    while at + 9 <= len(said):
        length = int.from_bytes(said[at : at + 3], "big")
        if said[at + 3] == _HEADERS and said[at + 4] & _END_STREAM:
            return True
        at += 9 + length
    return False


def end(connection: socket.socket) -> None:
    connection.sendall(data(1, b"", end=True))


def descriptors(server: Serving) -> int:
    """Counts them when nobody is connected."""
    wait_until(lambda: server.metric("headrace_connections") == 0, "the end of all connections")
    return server.seen.num_fds()


def writes(server: Serving) -> float:
    return server.metric('headrace_flight_writes_total{tier="memory"}')


def turned_away(server: Serving) -> list[float]:
    return [
        server.metric(f'headrace_connections_turned_away_total{{reason="{reason}"}}')
        for reason in ("full", "handshake", "idle")
    ]


def test_a_thousand_at_once_are_served_and_may_stay(server: Serving) -> None:
    before, open_before, whole = writes(server), descriptors(server), stream()
    with ExitStack() as crowd:
        connections = [crowd.enter_context(connect(server.port)) for _ in range(CROWD)]
        for connection in connections:
            connection.sendall(whole)
            end(connection)
        assert len(list(ends_of_streams(connections))) == CROWD
        assert writes(server) == before + CROWD
        for _ in range(MORE):
            crowd.enter_context(connect(server.port)).sendall(HELLO)
        wait_until(lambda: server.metric("headrace_connections") >= CROWD + MORE, "all connections")
        with server.client() as client:
            write_all(client, "next", [rows(1)])
        assert turned_away(server) == [0, 0, 0]
        assert server.action("health")["connections"]["open"] >= CROWD + MORE
    wait_until(lambda: descriptors(server) <= open_before, "the return of all descriptors")


def test_nothing_is_left_of_two_hundred_that_die_at_once(server: Serving) -> None:
    before, open_before, whole = writes(server), descriptors(server), stream()
    connections = [connect(server.port) for _ in range(DYING)]
    for connection in connections:
        connection.sendall(whole)
    wait_until(lambda: len(server.sessions()) == DYING, "their streams")
    wait_until(lambda: writes(server) == before + DYING, "their writes")
    for connection in connections:
        # A reset, in the place of a goodbye.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    wait_until(lambda: not server.sessions(), "the end of their streams")
    wait_until(lambda: descriptors(server) <= open_before, "the return of all descriptors")
    with server.client() as client:
        write_all(client, "next", [rows(2)])
    assert server.is_running


def test_a_crowd_that_says_nothing_is_turned_away_and_counted(server: Serving) -> None:
    silent = server.action("health")["connections"]["most"] // 2
    with ExitStack() as crowd:
        for _ in range(silent + 100):
            crowd.enter_context(connect(server.port))
        with server.client() as client:
            write_all(client, "next", [rows(3)])
        full, handshake, idle = turned_away(server)
        assert (full, idle) == (0, 0)
        assert handshake >= 100
        wait_until(lambda: "connections were turned away" in server.output(), "a line in the log")
    health = server.action("health")
    assert health["accepts_writes"]
    assert "port" in health["heartbeat_ages"]
