"""Being told to stop."""

from __future__ import annotations

import signal
import threading


class StopSignal:
    """SIGINT and SIGTERM as an event, from when it is made."""

    def __init__(self) -> None:
        self._told = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._told.set())

    def wait(self) -> None:
        # Not for ever at once: a signal that another thread was given is heard only when this one wakes up.
        while not self._told.wait(1.0):
            pass
