"""A port stays reserved for the process that picked it."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from devtools.ports import free_port
from headrace.errors import UnexpectedFailure
from headrace.testing import ports

REPOSITORY = Path(__file__).parents[2]
DRAW = "from devtools.ports import free_port; print(free_port(), flush=True); input()"


@contextmanager
def another_process() -> Iterator[int]:
    """Yields a port that another process has reserved but does not listen on."""
    with subprocess.Popen(
        [sys.executable, "-c", DRAW], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.processes
def test_no_two_processes_draw_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    with another_process() as port:
        assert ports.is_free(port)
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        with pytest.raises(UnexpectedFailure, match="are taken"):
            free_port()
    assert free_port() == port, "it was killed, and has left nothing that holds the port"


def test_a_port_on_which_somebody_listens_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", free_port()))
        listening.listen()
        port = listening.getsockname()[1]
        monkeypatch.setattr(ports, "PORTS", range(port, port + 1))
        assert not ports.is_free(port)
        with pytest.raises(UnexpectedFailure, match="are taken"):
            free_port()


def test_ports_are_below_those_of_outgoing_connections() -> None:
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert free_port() < first
