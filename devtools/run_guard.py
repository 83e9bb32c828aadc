"""Kills everything that a test run has started if the run itself is killed. Linux only.

Each process inherits an environment variable whose name belongs to this run, by which it is found, however
deep it was started. Servers have a clean environment and end by themselves (`devtools.processes`).
"""

from __future__ import annotations

import os
import subprocess
from uuid import uuid4

# Waits for a line, which says that the run has ended by itself, or for the end of file: the run has
# died. Repeats the search because a process may start another one before it is killed.
_KILL_IF_ORPHANED = """
read -r _ && exit
while found=$(grep -lsa "$1" /proc/[0-9]*/environ); [ "$found" ]; do
    for file in $found; do pid=${file#/proc/}; kill -9 "${pid%/environ}" 2>/dev/null; done
    sleep 0.1
done
"""


class RunGuard:
    """Guards this process and all that it starts from now on, until `release`."""

    def __init__(self) -> None:
        name = f"HEADRACE_TEST_RUN_{uuid4().hex}"
        os.environ[name] = "1"
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _KILL_IF_ORPHANED, "sh", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            start_new_session=True,  # must not receive Ctrl-C
        )

    def release(self) -> None:
        self._shell.communicate(b"ended\n")
