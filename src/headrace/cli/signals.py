"""Handles signals to stop."""

from __future__ import annotations

import signal
import threading


class StopSignal:
    """SIGINT and SIGTERM as an event, from its creation on."""

    def __init__(self) -> None:
        self._told = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: self._told.set())

    def wait(self) -> None:
        # Waits in steps, because a signal to another thread is handled only when this one wakes up.
        while not self._told.wait(1.0):
            pass
