"""Servers as child processes, which end when this process does, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_STOP_SECONDS = 30.0
_KILL_SECONDS = 5.0
_LOG_TAIL_LINES = 30

# Runs the server ("$@") until it ends, or until standard input delivers a line or the end of file. Removes
# the folder ("$home") unless the line says to keep it. This script does so because our process may have died,
# or may be killed before it has removed everything.
_UNTIL_TOLD_OR_ORPHANED = """
home=$1 signal=$2; shift 2
exec 3<&0
"$@" </dev/null 3<&- & server=$!
( read -r word <&3; trap '' TERM; kill -s "$signal" "$server"; [ "$word" = keep ] ) & watcher=$!
wait "$server"; status=$?
kill "$watcher" 2>/dev/null
wait "$watcher"
[ "$?" -eq 1 ] && rm -rf "$home"
exit "$status"
"""


def start_server(
    command: Sequence[str], home: Path, stop_signal: signal.Signals, **surroundings: Any
) -> subprocess.Popen[bytes]:
    """Runs a server until `stop_server` or until this process dies, and then removes the folder `home`.

    `surroundings` are arguments of Popen. The server must not ignore `stop_signal`.
    """
    name = stop_signal.name.removeprefix("SIG")
    return subprocess.Popen(
        ["/bin/sh", "-c", _UNTIL_TOLD_OR_ORPHANED, "sh", str(home), name, *command],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the tests, which then stop the server
        **surroundings,
    )


def stop_server(process: subprocess.Popen[bytes], keeps_folder: bool = False) -> None:
    """Shuts a server down cleanly, or kills its whole session if that takes too long."""
    try:
        # A line, not only the end of file: a forked child of ours may hold the pipe open as well.
        process.communicate(b"keep\n" if keeps_folder else b"remove\n", timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        _kill_session(process)


def _kill_session(process: subprocess.Popen[bytes]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    # That was the shell. The server is not our child, so all that can be done is to look whether it is gone;
    # not for long, for where nobody collects orphans, it stays as a zombie.
    deadline = time.monotonic() + _KILL_SECONDS
    with suppress(ProcessLookupError):
        while time.monotonic() < deadline:
            os.killpg(process.pid, 0)
            time.sleep(0.01)


def tail(log: Path) -> str:
    return tail_of(log.read_text(errors="replace"))


def tail_of(text: str) -> str:
    return "\n".join(text.splitlines()[-_LOG_TAIL_LINES:])
