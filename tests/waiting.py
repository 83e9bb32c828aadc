"""Waits for a state that another thread or process brings about. No test waits for time to pass."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 120.0
"""How long any test waits for anything. Far more than a loaded machine needs, because a test that reaches it
fails; a wait ends as soon as its condition holds."""
_POLL_SECONDS = 0.005


def wait_until(condition: Callable[[], object], what: str = "the awaited state") -> None:
    """Returns once the condition holds; fails the test, naming `what`, if it does not before the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"{what} was not reached in {DEADLINE_SECONDS:.0f} s"
        time.sleep(_POLL_SECONDS)
