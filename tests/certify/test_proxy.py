from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from devtools.ports import free_port
from headrace.certify.proxy import Proxy
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends everything back."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            while data := client.recv(65536):
                client.sendall(data)

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo) as proxy:
        yield proxy


def connect(proxy: Proxy) -> socket.socket:
    host, _, port = proxy.address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=DEADLINE_SECONDS)


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := client.recv(65536)):
        data += more
    return data


def test_passes_all_on_and_the_end_as_well(proxy: Proxy) -> None:
    sent = bytes(range(256)) * 20_000
    with connect(proxy) as client:
        threading.Thread(target=client.sendall, args=(sent,)).start()
        assert receive(client, len(sent)) == sent
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""


def test_a_cut_resets_what_is_open_and_nothing_else(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"before")
        assert receive(client, 6) == b"before"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)
    with connect(proxy) as client:
        client.sendall(b"after")
        assert receive(client, 5) == b"after"


def test_nothing_gets_through_a_stall_until_it_is_healed(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"before")
        assert receive(client, 6) == b"before"
        proxy.stall()
        client.sendall(b"during")
        with connect(proxy) as other:
            other.sendall(b"during")
            for each in (client, other):
                each.settimeout(0.2)  # the test itself holds the stall, so the value does not matter
                with pytest.raises(TimeoutError):
                    each.recv(1)
            proxy.heal()
            for each in (client, other):
                each.settimeout(DEADLINE_SECONDS)
                assert receive(each, 6) == b"during"


def test_a_stalled_connection_can_be_cut(proxy: Proxy) -> None:
    with connect(proxy) as client:
        client.sendall(b"before")
        assert receive(client, 6) == b"before"
        proxy.stall()
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_the_client_is_reset_where_nobody_listens(proxy: Proxy) -> None:
    proxy.target = ("127.0.0.1", free_port())
    # Perhaps before the client has even returned from connecting.
    with pytest.raises(ConnectionResetError), connect(proxy) as client:
        client.recv(1)
