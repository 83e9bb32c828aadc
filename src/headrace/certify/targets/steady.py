"""Reads that meet what is being written: a file that is replaced just then, a lock, a table half made."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from headrace.errors import EndpointUnavailable, Terminal

Read = TypeVar("Read")

_TIMES, _PAUSE = 240, 0.25
"""A minute: on a busy machine a writer may leave a table half made for long."""


def steadily(read: Callable[[], Read]) -> Read:
    """Tries again from the beginning for a minute; what is wrong for longer is one sentence."""
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
