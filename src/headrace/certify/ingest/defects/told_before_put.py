"""OBJECT_STORAGE is told before the put has returned."""

from __future__ import annotations

from typing import Any

from headrace.ingest.uploader import Uploader
from headrace.wal.segments import Segment

_put = Uploader._put


def _told_first(self: Uploader, segment: Segment, may_be_there: bool) -> bool:
    self._on_uploaded(segment)
    return _put(self, segment, may_be_there)


_patched: Any = Uploader
_patched._put = _told_first
