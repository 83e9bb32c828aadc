"""Which segments there are, and how far each has come on its way to being removed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import dropwhile, takewhile
from threading import Lock

from headrace.wal.segments import Segment


class SegmentIndex:
    """Sealed segments in the order of their numbers; those at the front are uploaded. Thread-safe."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._uploaded_through = self._segments[0].header.number - 1 if self._segments else 0
        self._bytes = sum(segment.length for segment in self._segments)
        self._lock = Lock()

    def add(self, segment: Segment) -> None:
        with self._lock:
            self._segments.append(segment)
            self._bytes += segment.length

    def uploaded(self, segment: Segment) -> None:
        """Segments are uploaded in order."""
        self._uploaded_through = segment.header.number

    @property
    def bytes(self) -> int:
        return self._bytes

    def needed_bytes(self, committed: Callable[[str], int]) -> int:
        """Sums up the first segment that is not yet uploaded or committed, and all after it: none of
        those can be removed before it is, whatever has become of them."""

        def is_done(segment: Segment) -> bool:
            return self.is_uploaded(segment) and is_committed(segment, committed)

        return sum(segment.length for segment in dropwhile(is_done, self.all()))

    def all(self) -> list[Segment]:
        with self._lock:
            return list(self._segments)

    @property
    def uploaded_through(self) -> int:
        """The number of the newest segment that is uploaded."""
        return self._uploaded_through

    def to_commit(self, committed: Callable[[str], int], through: int, most_bytes: int) -> list[Segment]:
        """Returns segments up to a number, oldest first, with writes that are not yet in their collection's
        table."""
        wanted: list[Segment] = []
        size = 0
        for segment in self.all():
            if segment.header.number > through or size > most_bytes:
                break
            if not is_committed(segment, committed):
                wanted.append(segment)
                size += segment.length
        return wanted

    def oldest(self, is_done: Callable[[Segment], bool]) -> Segment | None:
        return next((segment for segment in self.all() if segment.last_lsns and not is_done(segment)), None)

    def is_uploaded(self, segment: Segment) -> bool:
        return segment.header.number <= self._uploaded_through

    def removable(self, committed: Callable[[str], int]) -> list[Segment]:
        """Returns the segments at the front that nobody needs any more; there is always one after them.

        The log's state is read from the segments that remain, so the newest uploaded one that has it stays.
        """
        uploaded = [segment for segment in self.all() if self.is_uploaded(segment)]
        keep_from = max((index for index, segment in enumerate(uploaded) if segment.has_state), default=0)
        return list(takewhile(lambda segment: is_committed(segment, committed), uploaded[:keep_from]))

    def remove(self, count: int) -> None:
        """Takes out so many at the front."""
        with self._lock:
            self._bytes -= sum(segment.length for segment in self._segments[:count])
            del self._segments[:count]


def is_committed(segment: Segment, committed: Callable[[str], int]) -> bool:
    return all(lsn <= committed(collection) for collection, lsn in segment.last_lsns.items())
