"""Segments are removed, and the low-water mark does not say so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.ingest.low_water import LowWater, LowWaterMark

_move = LowWaterMark.move


def _once(self: LowWaterMark, change: Callable[[LowWater], LowWater]) -> None:
    if not self.current.number:
        _move(self, change)


_patched: Any = LowWaterMark
_patched.move = _once
