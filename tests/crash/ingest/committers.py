from __future__ import annotations

from pathlib import Path

import psutil

from headrace.testing.ingest_process import IngestProcess
from tests.waiting import wait_until

_COMMITTER = "headrace.ingest.iceberg.committer_process"


def committers_of(server: IngestProcess) -> list[psutil.Process]:
    """The server's processes that commit: one, or none while it starts."""
    try:
        children = psutil.Process(server.pid).children()
        return [child for child in children if _COMMITTER in child.cmdline()]
    except psutil.Error:
        return []


def freeze(process: psutil.Process) -> None:
    """Returns when all threads have stopped; until then one could notice that its server has ended."""
    process.suspend()
    wait_until(lambda: _states(process) == {"T"}, f"all threads of {process} to stand still")


def _states(process: psutil.Process) -> set[str]:
    threads = Path(f"/proc/{process.pid}/task").glob("*/stat")
    try:
        return {thread.read_text().rpartition(")")[2].split()[0] for thread in threads}
    except OSError:  # a thread has just ended
        return set()
