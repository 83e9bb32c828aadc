"""What all servers on Java have in common, tried with the smallest of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from devtools.java_server import java_command
from devtools.s3_server import S3Server
from devtools.server import ServerError
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
# A process that starts a server, says where it is, and waits to be killed.
OWNER = """
import time
from devtools.s3_server import S3Server
from devtools.server import ServerError
with S3Server() as server:
    {then}
    print(server.port, server._home, flush=True)
    time.sleep(600)
"""


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def listening_addresses(port: int) -> set[str]:
    """The addresses on which somebody listens to a port, as Linux writes them."""
    lines = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
    ]
    listening = "0A"
    return {
        fields[1].split(":")[0]
        for fields in lines
        if fields[3] == listening and fields[1].endswith(f":{port:04X}")
    }


def test_it_listens_on_loopback_alone(s3_server: S3Server) -> None:
    (address,) = listening_addresses(s3_server.port)
    assert address in {"0100007F", "0000000000000000FFFF00000100007F"}


@pytest.mark.full
def test_it_leaves_nothing_behind() -> None:
    with S3Server() as server:
        with pytest.raises(ServerError, match="already started"):
            server.start()
        home = server._home
        assert home is not None
        assert home.is_dir()

    assert not is_open(server.port)
    assert not home.exists()


@pytest.mark.processes
@pytest.mark.parametrize(
    "then",
    [pytest.param("pass", id="up"), pytest.param("server.stop()", id="down", marks=pytest.mark.full)],
)
def test_it_ends_with_the_process_that_started_it(then: str) -> None:
    script = OWNER.format(then=then)
    with subprocess.Popen([sys.executable, "-c", script], cwd=REPOSITORY, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        try:
            port, home = owner.stdout.readline().decode().split()
            assert Path(home).is_dir()
        finally:
            owner.kill()

    wait_until(lambda: not Path(home).exists(), "the removal of the server's folder")
    assert not is_open(int(port))


@pytest.mark.processes
def test_a_failed_start_shows_the_log_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    homes: list[Path] = []

    def command(server: S3Server, home: Path) -> list[str]:
        homes.append(home)
        return java_command(home, [], "no.such.Main")

    monkeypatch.setattr(S3Server, "_command", command)
    with pytest.raises(ServerError, match="Could not find or load main class"):
        S3Server().start()
    assert homes
    assert not [home for home in homes if home.exists()]


@pytest.mark.full
def test_a_server_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devtools.processes._STOP_SECONDS", 0.5)
    with S3Server() as server:
        assert server._process is not None
        os.killpg(server._process.pid, signal.SIGSTOP)
    assert not is_open(server.port)
