"""The error of a put is ignored."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from headrace.errors import Transient
from headrace.ingest.store import SegmentStore
from headrace.wal.segments import Segment

_put = SegmentStore.put


def _in_any_case(self: SegmentStore, segment: Segment, term: int) -> None:
    with suppress(Transient):
        _put(self, segment, term)


_patched: Any = SegmentStore
_patched.put = _in_any_case
