"""A file that could not be removed is forgotten, and those after it are removed."""

from __future__ import annotations

from typing import Any

from headrace.ingest.engine import Engine

_remove_committed = Engine._remove_committed


def _once(self: Engine) -> None:
    _remove_committed(self)
    self._removable.clear()


_patched: Any = Engine
_patched._remove_committed = _once
