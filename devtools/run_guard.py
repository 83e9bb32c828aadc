"""Ends all that a test run has started, and removes its folder, if the run itself is killed. Linux only.

Each process inherits an environment variable whose name belongs to this run, by which it is found, however
deep it was started. Servers have a clean environment and end by themselves (`devtools.processes`).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from uuid import uuid4

# Waits for a line, which says that the run has ended by itself, or for the end of file: it has died. Each
# process may end in good order, so that Spark removes its folders; who has not in half a minute is killed.
# A process that is just being executed has no environment for a moment, so it is looked for several times.
_END_IF_ORPHANED = """
read -r _ && exit
told=' ' missed=0 until=$(($(date +%s) + 30))
while [ "$missed" -lt 5 ]; do
    processes=$(grep -lsa "$1" /proc/[0-9]*/environ)
    if [ "$processes" ]; then missed=0; else missed=$((missed + 1)); fi
    for file in $processes; do
        pid=${file#/proc/} pid=${pid%/environ}
        if [ "$(date +%s)" -ge "$until" ]; then
            kill -s KILL "$pid"
        elif [ "${told#* $pid }" = "$told" ]; then
            kill -s TERM "$pid"
            told="$told$pid "
        fi
    done
    sleep 0.1
done
rm -rf "$2"
"""


class RunGuard:
    """Guards all that this process starts from now on, and the folder of the run, until `release`."""

    def __init__(self, folder: Path) -> None:
        name = f"HEADRACE_TEST_RUN_{uuid4().hex}"
        os.environ[name] = "1"
        self._shell = subprocess.Popen(
            ["/bin/sh", "-c", _END_IF_ORPHANED, "sh", name, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath},
            start_new_session=True,  # must not receive Ctrl-C
        )

    def release(self) -> None:
        self._shell.communicate(b"ended\n")
