"""Freezes processes, so that tests can rely on nothing happening in them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from headrace.errors import UnexpectedFailure

_SECONDS = 120.0
_POLL_SECONDS = 0.001
# Stopped, or dead and not yet collected.
_STANDING_STILL = {"T", "t", "Z", "X"}


def freeze(pid: int) -> None:
    """Stops a process with SIGSTOP, and returns once all of its threads have stopped.

    The signal alone is not enough: it reaches one thread, and the others run for a while longer.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _SECONDS
    while not _thread_states(pid) <= _STANDING_STILL:
        if time.monotonic() > deadline:
            raise UnexpectedFailure(f"process {pid} did not stand still in {_SECONDS:.0f} s")
        time.sleep(_POLL_SECONDS)


def _thread_states(pid: int) -> set[str]:
    states = set()
    for thread in Path(f"/proc/{pid}/task").glob("*/stat"):
        try:
            states.add(thread.read_text().rpartition(")")[2].split()[0])
        except OSError:  # the thread has just ended
            continue
    return states
