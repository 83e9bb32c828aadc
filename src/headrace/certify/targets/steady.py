"""Reads that meet what is being written: a file that is replaced just then, a lock, a table half made."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import EndpointUnavailable, Terminal

Read = TypeVar("Read")

_TIMES, _PAUSE = 240, 0.25
"""Retries for a minute, because a writer on a busy machine may leave a table half written for long."""


def steadily(read: Callable[[], Read]) -> Read:
    """Retries the whole read for a minute, and then raises the last error as one sentence."""
    for _ in range(_TIMES):
        try:
            return read()
        except Terminal:
            raise
        except Exception as error:  # noqa: BLE001 - each library has its own
            last = error
            time.sleep(_PAUSE)
    said = str(last).strip().partition("\n")[0]
    raise EndpointUnavailable(f"it cannot be read: {said or type(last).__name__}") from last
