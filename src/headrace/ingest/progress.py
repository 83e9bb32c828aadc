"""How far everything has come: a watermark for each tier, and who wants to hear of it."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import itemgetter
from threading import Condition
from typing import Protocol

from headrace.model.tiers import Tier
from headrace.wal.state import Committed, Range

# Enough to tell when each write of the last seconds got there; older ones get the time of the oldest kept.
_MOST_ADVANCES = 4096


@dataclass(frozen=True, slots=True)
class Reached:
    """A run of LSNs that reached a tier at the same moment."""

    first: int
    last: int
    at_us: int
    snapshot_id: int | None


class Watermark:
    """Everything at or below `lsn` is at the tier. One thread advances it, any thread reads it."""

    def __init__(self, lsn: int = 0, snapshot_id: int | None = None) -> None:
        # LSN, time and snapshot of each advance. Readers take no lock: it is only appended to, or replaced.
        self._advances: list[tuple[int, int, int | None]] = [(lsn, now_us(), snapshot_id)]

    @property
    def lsn(self) -> int:
        return self._advances[-1][0]

    @property
    def at_us(self) -> int:
        return self._advances[-1][1]

    @property
    def snapshot_id(self) -> int | None:
        return self._advances[-1][2]

    def advance(self, lsn: int, snapshot_id: int | None = None) -> bool:
        advances = self._advances
        if lsn <= advances[-1][0]:
            return False
        if len(advances) >= _MOST_ADVANCES:
            self._advances = advances = advances[_MOST_ADVANCES // 2 :]
        advances.append((lsn, now_us(), snapshot_id))
        return True

    def when(self, first: int, last: int) -> Iterator[Reached]:
        """When the writes of a range that is at or below the watermark got there."""
        advances = self._advances
        position = bisect_left(advances, first, key=itemgetter(0))
        while first <= last:
            lsn, at_us, snapshot_id = advances[min(position, len(advances) - 1)]
            until = min(last, lsn) if lsn >= first else last
            yield Reached(first, until, at_us, snapshot_id)
            first, position = until + 1, position + 1


class Listener(Protocol):
    """Somebody who waits for writes of a collection to reach tiers."""

    collection: str

    def waits_for(self, tier: Tier) -> bool: ...

    def wake(self) -> None: ...


class Progress:
    """The watermarks of a server. MEMORY is not here: a write is in memory when it has its LSN."""

    def __init__(self, durable: int, uploaded: int, committed: dict[str, Committed]) -> None:
        self._shared = {Tier.LOCAL_DISK: Watermark(durable), Tier.OBJECT_STORAGE: Watermark(uploaded)}
        self._committed = {name: Watermark(at.lsn, at.snapshot_id) for name, at in committed.items()}
        self._listeners: tuple[Listener, ...] = ()
        self._moved = Condition()

    def of(self, tier: Tier, collection: str) -> Watermark:
        if tier is Tier.COMMITTED:
            watermark = self._committed.get(collection)
            return watermark or self._committed.setdefault(collection, Watermark())
        return self._shared[tier]

    def advance(self, tier: Tier, lsn: int) -> None:
        """Only after the call that makes it true has returned."""
        if self._shared[tier].advance(lsn):
            self._tell([listener for listener in self._listeners if listener.waits_for(tier)])

    def advance_committed(self, collection: str, lsn: int, snapshot_id: int | None) -> None:
        if self.of(Tier.COMMITTED, collection).advance(lsn, snapshot_id):
            waiting = [listener for listener in self._listeners if listener.collection == collection]
            self._tell([listener for listener in waiting if listener.waits_for(Tier.COMMITTED)])

    def listen(self, listener: Listener) -> None:
        with self._moved:
            self._listeners = (*self._listeners, listener)

    def forget(self, listener: Listener) -> None:
        with self._moved:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

    @property
    def listeners(self) -> tuple[Listener, ...]:
        return self._listeners

    def wait_for(self, condition: Callable[[], bool], timeout: float) -> bool:
        """Looks again at every advance."""
        with self._moved:
            return self._moved.wait_for(condition, timeout)

    def _tell(self, listeners: list[Listener]) -> None:
        for listener in listeners:
            listener.wake()
        with self._moved:
            self._moved.notify_all()


def tier_of(lsn: int, watermarks: Mapping[str, int], lost: Iterable[Range]) -> str:
    """Returns how far a write is: a tier, LOST, or UNKNOWN for a number that was never given away."""
    if any(first <= lsn <= last for first, last in lost):
        return "LOST"
    if lsn <= 0 or lsn > watermarks[Tier.MEMORY.name]:
        return "UNKNOWN"
    return max(tier for tier in Tier if lsn <= watermarks[tier.name] or tier is Tier.MEMORY).name


def now_us() -> int:
    return time.time_ns() // 1000
