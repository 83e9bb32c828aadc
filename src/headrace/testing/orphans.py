"""Kills child processes when this one dies, in whatever way, so that no test leaves a server behind."""

from __future__ import annotations

import atexit
import os
import subprocess
import threading
from pathlib import Path

# Reads "PID START" until "end", or until the end of file, which comes when the writing process has died. A
# process with the same id but another start time is not ours. If it led a session, that is killed with it.
_WATCHER = """
children=
while read -r child && [ "$child" != end ]; do children="$children $child"; done
fields_of() { fields=$(cat "$1" 2>/dev/null) && fields=${fields##*) }; }
session_and_start() { session=$4 found=${20}; }
set -- $children
while [ $# -gt 0 ]; do
    pid=$1 start=$2; shift 2
    fields_of "/proc/$pid/stat" || continue
    session_and_start $fields
    [ "$found" = "$start" ] || continue
    kill -9 "$pid"
    [ "$session" = "$pid" ] || continue
    for file in /proc/[0-9]*/stat; do
        fields_of "$file" || continue
        session_and_start $fields
        other=${file#/proc/}
        [ "$session" = "$pid" ] && kill -9 "${other%/stat}"
    done
done
"""


class _Watcher:
    """Watches all children with one shell process. After a fork it starts another one, since a shell waits
    for only one parent."""

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
                    start_new_session=True,  # must not receive Ctrl-C
                )
                atexit.register(self._end)
            assert self._process.stdin is not None
            self._process.stdin.write(f"{pid} {start}\n")
            self._process.stdin.flush()

    def _end(self) -> None:
        """Ends the shell with this process; a forked child leaves its parent's shell alone."""
        if self._process is not None and self._owner == os.getpid():
            self._process.communicate("end\n")


_WATCHER_OF_US = _Watcher()


def end_with_us(pid: int) -> None:
    """Ensures that a child, with the session that it leads, is killed if this process dies first. Linux
    only."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return
    # The fields after the process name, which may contain any character.
    _WATCHER_OF_US.watch(pid, stat.rpartition(") ")[2].split()[19])
