"""A scripted server, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import headrace
from headrace.client import Client, Reconnect
from headrace.errors import HeadraceError
from tests.client.scripted_server import ScriptedServer

QUICK = Reconnect(first_pause=0.001, longest_pause=0.02, give_up_after=20, open_timeout=10, ack_timeout=20)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted
        scripted.kill()


@pytest.fixture
def client(server: ScriptedServer) -> Iterator[Client]:
    connected = headrace.connect(server.url)
    yield connected
    with contextlib.suppress(HeadraceError):  # a test of a failure has looked at it already
        connected.close(timeout=5)
