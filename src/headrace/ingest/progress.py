"""How far everything has come: a watermark for each tier."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace._native import Log
from headrace.model.tiers import Tier
from headrace.wal.state import Range


class Watermark(NamedTuple):
    """Everything at or below `lsn` is at the tier."""

    lsn: int = 0
    snapshot_id: int | None = None


class Progress:
    """The watermarks of a server, which the log keeps, since it tells streams of them."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def of(self, tier: Tier, collection: str) -> Watermark:
        match tier:
            case Tier.MEMORY:
                return Watermark(self._log.last_lsn)
            case Tier.LOCAL_DISK:
                return Watermark(self._log.local_disk)
            case Tier.OBJECT_STORAGE:
                return Watermark(self._log.object_storage)
            case Tier.COMMITTED:
                return Watermark(*self._log.committed_to(collection))

    def uploaded(self, segment: int, last_lsn: int) -> None:
        """Only after the put has returned."""
        self._log.uploaded(segment, last_lsn)

    def advance_committed(self, collection: str, lsn: int, snapshot_id: int | None) -> None:
        """Only after the commit has returned."""
        self._log.committed(collection, lsn, snapshot_id)

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Looks again at every advance."""
        deadline = time.monotonic() + timeout
        while True:
            seen = self._log.advances
            if condition():
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._log.wait_above(seen, left)


def tier_of(lsn: int, watermarks: Mapping[str, int], lost: Iterable[Range]) -> str:
    """Returns how far a write is: a tier, LOST, or UNKNOWN for a number that was never given away."""
    if any(first <= lsn <= last for first, last in lost):
        return "LOST"
    if lsn <= 0 or lsn > watermarks[Tier.MEMORY.name]:
        return "UNKNOWN"
    return max(tier for tier in Tier if lsn <= watermarks[tier.name] or tier is Tier.MEMORY).name


def now_us() -> int:
    return time.time_ns() // 1000
