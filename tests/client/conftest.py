"""A scripted server, and a client of it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

import headrace
from headrace.client import Client, Reconnect, Writer
from headrace.errors import HeadraceError
from tests.client.scripted_server import ScriptedServer
from tests.waiting import DEADLINE_SECONDS

QUICK = Reconnect(
    first_pause=0.001,
    longest_pause=0.02,
    give_up_after=DEADLINE_SECONDS,
    open_timeout=DEADLINE_SECONDS,
    ack_timeout=DEADLINE_SECONDS,
)
UNTIL_TOLD = 3600.0
"""A linger so long that nothing is sent before a batch is full or a flush is requested."""


def be_patient(writer: Writer) -> None:
    """Lets the server take its time from now on, whatever time-outs the writer was created with."""
    writer._sender._reconnect = QUICK


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
