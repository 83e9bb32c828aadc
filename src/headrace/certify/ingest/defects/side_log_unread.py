"""A quarantine ends without what is in the side log."""

from __future__ import annotations

from typing import Any

from headrace.ingest.quarantine.lifecycle import Quarantine
from headrace.wal.segments import Segment


def _none(*_: object) -> list[Segment]:
    return []


_patched: Any = Quarantine
_patched.segments = _none
