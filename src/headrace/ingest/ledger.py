"""Which writes of a session are still to be announced, and at which tiers."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from headrace.model.tiers import Tier

Range = tuple[int, int]

# Announced ranges are dropped this many at a time, since the front of an array is costly to remove.
_DROPPED_AT_ONCE = 4096


class Ledger:
    """The session's LSNs as ranges, in one queue that every tier reads with a cursor of its own.

    A range is 16 bytes whatever its length, and neighbours join: a million writes in flight take at most
    16 MB, when no two of them are neighbours, and a few bytes when the session is the only one that writes.
    LSNs rise from range to range, but for writes that a producer sent again, which keep their old ones.
    Not thread-safe: the session's lock guards it.
    """

    def __init__(self, tiers: Iterable[Tier]) -> None:
        self._firsts = array("Q")
        self._lasts = array("Q")
        self._cursors = {tier: [0, 0] for tier in tiers}  # index of a range, and the next LSN within it
        self._written = 0
        self._announced = dict.fromkeys(self._cursors, 0)

    def add(self, first: int, count: int) -> None:
        last = first + count - 1
        if self._lasts and self._lasts[-1] == first - 1:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)
        self._written += count

    def skip(self, tier: Tier) -> None:
        """Does not announce at this tier what has been added so far."""
        cursor = self._cursors.get(tier)
        if cursor is not None and self._lasts:
            cursor[:] = [len(self._lasts) - 1, self._lasts[-1] + 1]
            self._announced[tier] = self._written

    def take(self, tier: Tier, watermark: int, most: int) -> list[Range]:
        """The ranges up to the watermark that are not yet announced at the tier, at most `most` writes."""
        taken: list[Range] = []
        cursor = self._cursors[tier]
        index, at = cursor
        while index < len(self._lasts) and most > 0:
            first = max(at, self._firsts[index])
            last = min(self._lasts[index], watermark, first + most - 1)
            if first <= last:
                taken.append((first, last))
                most -= last - first + 1
                self._announced[tier] += last - first + 1
                at = last + 1
            if at <= self._lasts[index] or index == len(self._lasts) - 1:
                break  # below the watermark's reach, or the last range, which may still grow
            index, at = index + 1, 0
        cursor[:] = [index, at]
        self._drop()
        return taken

    def pending(self, tier: Tier) -> int:
        """How many writes are not yet announced at a tier."""
        announced = self._announced.get(tier)
        return 0 if announced is None else self._written - announced

    @property
    def is_done(self) -> bool:
        return all(announced == self._written for announced in self._announced.values())

    @property
    def ranges(self) -> int:
        return len(self._firsts)

    def _drop(self) -> None:
        done = min(index for index, _ in self._cursors.values())
        if done >= _DROPPED_AT_ONCE:
            del self._firsts[:done], self._lasts[:done]
            for cursor in self._cursors.values():
                cursor[0] -= done
