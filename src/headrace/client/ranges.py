"""Small indexes over LSNs: which ones were lost, and which snapshot contains which."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right

# One for each commit: at a commit every ten seconds these last for more than a day.
MOST_SNAPSHOTS = 10_000


class LsnRanges:
    """A set of LSNs, kept as ranges that do not touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def add(self, first: int, last: int) -> None:
        # Every range that overlaps or touches [first, last] becomes part of it.
        start = bisect_left(self._lasts, first - 1)
        end = bisect_right(self._firsts, last + 1)
        if start < end:
            first = min(first, self._firsts[start])
            last = max(last, self._lasts[end - 1])
        self._firsts[start:end] = [first]
        self._lasts[start:end] = [last]

    def __contains__(self, lsn: int) -> bool:
        place = bisect_left(self._lasts, lsn)
        return place < len(self._firsts) and self._firsts[place] <= lsn

    def below(self, lsn: int) -> int:
        """Returns the highest LSN up to this one that is not in the set."""
        place = bisect_left(self._lasts, lsn)
        if place < len(self._firsts) and self._firsts[place] <= lsn:
            return self._firsts[place] - 1
        return lsn

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def __iter__(self) -> zip[tuple[int, int]]:
        return zip(self._firsts, self._lasts, strict=True)


class Snapshots:
    """Maps each snapshot to its last LSN. Forgets the oldest ones."""

    def __init__(self, most: int = MOST_SNAPSHOTS) -> None:
        self._most = most
        self._lsns = array("Q")
        # Signed: the format says long, and does not guarantee positive ids.
        self._ids = array("q")
        self._forgotten = 0

    def add(self, lsn: int, snapshot_id: int) -> None:
        if self._lsns and lsn <= self._lsns[-1]:
            return  # reported again after a reconnection
        self._lsns.append(lsn)
        self._ids.append(snapshot_id)
        if len(self._lsns) > self._most:
            half = self._most // 2
            self._forgotten = self._lsns[half - 1]
            del self._lsns[:half], self._ids[:half]

    def find(self, lsn: int) -> int | None:
        """Returns the first snapshot that contains this LSN, if it is known."""
        place = bisect_left(self._lsns, lsn)
        if lsn <= self._forgotten or place == len(self._lsns):
            return None
        return self._ids[place]
