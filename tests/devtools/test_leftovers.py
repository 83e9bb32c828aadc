"""Tests leave nothing behind, however they end, and leftovers are detected."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from devtools.footprint import Footprint
from devtools.leftovers import End, leftovers, main
from tests.waiting import DEADLINE_SECONDS, wait_until

# Listens in a process with a clean environment, as our servers have, that works in the temporary folder.
SERVER = """
import socket, time
listening = socket.create_server(("127.0.0.1", 0))
open("left", "w").write(str(listening.getsockname()[1]))
time.sleep(600)
"""
OWNER = f"""
import os, subprocess, sys
command = [sys.executable, "-c", {SERVER!r}]
subprocess.Popen(command, env={{}}, cwd=os.environ["TMPDIR"], start_new_session=True)
sys.stdin.read()
"""


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("end", End)
def test_nothing_is_left(end: End) -> None:
    assert leftovers(end) == []


@pytest.mark.processes
def test_a_process_a_port_and_a_file_that_are_left_are_found() -> None:
    footprint = Footprint()
    try:
        environment = {**os.environ, **footprint.environment}
        command = [sys.executable, "-c", OWNER]
        with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE) as owner:
            file = footprint.folder / "left"
            wait_until(lambda: file.exists() and file.read_text(), "a server that listens")
            footprint.look()
            assert len(footprint.commands) == 2
            owner.communicate(timeout=DEADLINE_SECONDS)
        process, port, left = footprint.left()
        assert process.startswith("process ")
        assert "socket.create_server" in process
        assert port == f"port {file.read_text()}"
        assert left == f"file {file}"
    finally:
        footprint.remove()
    wait_until(lambda: not footprint.commands, "the end of what was left")
    assert not footprint.folder.exists()


def test_what_is_open_elsewhere_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    (tmp_path / "headrace-ports").mkdir()
    (tmp_path / "old").touch()
    footprint = Footprint()
    inside = footprint.home / "x"
    for path in (tmp_path / "old", tmp_path / "headrace-ports/1.lock", tmp_path / "new/below", inside):
        path.parent.mkdir(exist_ok=True)
        path.touch()
        footprint._note_file(path)
    assert footprint.left() == [f"file {tmp_path}/headrace-ports/1.lock", f"file {tmp_path}/new"]
    footprint.remove()


def test_help_has_an_example() -> None:
    assert "python -m devtools.leftovers" in CliRunner().invoke(main, ["--help"]).output
