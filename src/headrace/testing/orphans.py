"""Processes that are killed when this one dies, however it dies, so that no test leaves a server behind."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

# Reads "PID START" until the end of file, which comes when whoever writes is gone. A process with the number
# but another start is somebody else's.
_WATCHER = """
children=
while read -r child; do children="$children $child"; done
set -- $children
while [ $# -gt 0 ]; do
    pid=$1 start=$2; shift 2
    found=$(cat "/proc/$pid/stat" 2>/dev/null) || continue
    found=$(set -- ${found##*) }; echo "${20}")
    [ "$found" = "$start" ] && kill -9 "$pid"
done
"""


class _Watcher:
    """One process of the shell's for all; another one after a fork, since the first would wait for both."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def watch(self, pid: int, start: str) -> None:
        with self._lock:
            if self._process is None or self._owner != os.getpid():
                self._owner = os.getpid()
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _WATCHER],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    text=True,
                    start_new_session=True,  # Ctrl-C is not for it
                )
            assert self._process.stdin is not None
            self._process.stdin.write(f"{pid} {start}\n")
            self._process.stdin.flush()


_WATCHER_OF_US = _Watcher()


def end_with_us(pid: int) -> None:
    """Has a child killed when this process dies without having ended it; on Linux alone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return
    # What follows the name, which may have anything in it.
    _WATCHER_OF_US.watch(pid, stat.rpartition(") ")[2].split()[19])
