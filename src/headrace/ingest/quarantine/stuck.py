"""Judges which collection is to be quarantined: one that stays stuck by itself, and never all of them.

A store or a catalog that is away stops every collection, and blames none. So others have to move on while one
does not; where a collection is the only one that fails, that its table answers has to do.

The process that commits may die of what it commits, or be ended from outside, whatever it does. If the signal
does not tell, another collection has to: only a death after which another one was committed counts.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import HeadraceError, Terminal
from headrace.ingest.iceberg.errors import CommitterDied, CommitterKilled, CommitterSilent
from headrace.ingest.table_history import TableBehind


@dataclass(frozen=True)
class StuckLimits:
    refusals: int = 3
    """A collection is quarantined after so many commits in a row that were refused for good,"""
    failures: int = 20
    """or that failed in another way although its table answers,"""
    deaths: int = 5
    """or that ended the process that commits, with nothing else to do than a single segment of it: by a fault
    of its own, or with another collection committed after each time,"""
    log_share: float = 0.5
    """or as soon as it keeps so much of `log_bytes` from being released."""


@dataclass
class _Streak:
    """What happened to a collection since its table last moved."""

    error: HeadraceError
    refusals: int = 0
    failures: int = 0
    deaths: int = 0
    is_unexplained: bool = False
    """The process died, and it may have been ended from outside."""
    others_moved: bool = False


class Stuck:
    """Not thread-safe: the thread that commits has it."""

    def __init__(self, limits: StuckLimits) -> None:
        self._limits = limits
        self._streaks: dict[str, _Streak] = {}

    def names(self) -> list[str]:
        return sorted(self._streaks)

    @property
    def suspects(self) -> set[str]:
        """Those with which the committer's process died when it had nothing else to do."""
        return {name for name, streak in self._streaks.items() if isinstance(streak.error, CommitterDied)}

    def failed(self, collection: str, error: HeadraceError) -> None:
        streak = self._streak(collection, error)
        streak.deaths, streak.is_unexplained = 0, False
        if isinstance(error, TableBehind):
            return  # what a table lacks may be brought back, and then it goes on by itself
        streak.failures += 1
        streak.refusals = streak.refusals + 1 if isinstance(error, Terminal) else 0

    def died(self, collection: str, error: CommitterDied) -> None:
        streak = self._streak(collection, error)
        streak.is_unexplained = isinstance(error, CommitterKilled | CommitterSilent)
        streak.deaths += not streak.is_unexplained

    def moved(self, collection: str) -> None:
        self._streaks.pop(collection, None)
        for streak in self._streaks.values():
            streak.others_moved = True

    def survived(self) -> None:
        """Takes note that the process has committed a collection, and answered: that it died of those before
        is evidence against them."""
        for streak in self._streaks.values():
            streak.deaths += streak.is_unexplained
            streak.is_unexplained = False

    def forget(self, collection: str) -> None:
        self._streaks.pop(collection, None)

    def verdict(self, collection: str, log_share: float) -> str | None:
        """Returns why a collection is to be quarantined, which keeps this share of `log_bytes`; None if it
        is not. Its table has to answer, too, unless it is refused."""
        limits, streak = self._limits, self._streaks[collection]
        said = streak.error.message
        if not (streak.others_moved or len(self._streaks) == 1):
            return None
        if streak.refusals >= limits.refusals:
            return said
        if streak.deaths >= limits.deaths:
            return (
                f"the process that commits ended {streak.deaths} times on it alone, the last time so: {said}"
            )
        if not streak.others_moved:
            return None
        if streak.failures >= limits.failures:
            return f"{streak.failures} commits in a row failed, the last one so: {said}"
        if log_share >= limits.log_share:
            return f"it keeps {log_share:.0%} of log_bytes from being released: {said}"
        return None

    def needs_answer(self, collection: str, log_share: float) -> bool:
        """Returns whether the table has to answer before the verdict counts."""
        streak = self._streaks[collection]
        return streak.refusals < self._limits.refusals and log_share < self._limits.log_share

    def _streak(self, collection: str, error: HeadraceError) -> _Streak:
        streak = self._streaks.setdefault(collection, _Streak(error))
        streak.error = error
        return streak
