"""Named points of the code at which a test makes something go wrong; they do nothing unless it asks.

A process that is started with `HEADRACE_FAULT=POINT` kills itself, with all of its process group, when it
gets to the point; with `POINT*3`, when it gets there for the third time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

_VARIABLE = "HEADRACE_FAULT"


def _ignore(_: str) -> None:
    pass


class _Killer:
    def __init__(self, wanted: str) -> None:
        self._point, _, times = wanted.partition("*")
        self._left = int(times or 1)

    def __call__(self, point: str) -> None:
        self._left -= point == self._point
        if not self._left:
            os.killpg(0, signal.SIGKILL)


reached: Callable[[str], None] = _Killer(os.environ[_VARIABLE]) if _VARIABLE in os.environ else _ignore
"""Called where a fault may be put, with the point's name: a package, a step, and where in it."""
