"""Waiting for what other threads do, without a fixed pause."""

from __future__ import annotations

import time
from collections.abc import Callable

# Far more than anything here takes, and less than pytest's own limit.
PATIENCE_SECONDS = 30.0


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)
