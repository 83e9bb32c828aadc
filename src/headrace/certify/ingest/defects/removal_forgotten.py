"""A file that could not be removed is forgotten, and those after it are removed."""

from __future__ import annotations

from typing import Any

from headrace.ingest.cleaner import Cleaner

_remove_committed = Cleaner._remove_committed


def _once(self: Cleaner) -> None:
    try:
        _remove_committed(self)
    finally:
        self._removable.clear()


_patched: Any = Cleaner
_patched._remove_committed = _once
