"""Reads what lanes have, while they run and after, and keeps what is wrong with it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from headrace.certify.lanes import Lane
from headrace.certify.oracle import Found, look
from headrace.errors import HeadraceError

_PAUSE = 0.25


@dataclass
class Looks:
    """At one lane, in one scenario."""

    lane: Lane
    keeps_state: bool = True
    """Whether a start knows what the one before it has staged."""
    wrong: list[str] = field(default_factory=list)
    lost: set[int] = field(default_factory=set)
    doubled: set[int] = field(default_factory=set)
    count: int = 0
    seen: dict[str, int] = field(default_factory=dict)
    """How many documents a reader saw last, by the kind of view."""

    @property
    def prefix(self) -> int:
        """How many documents all views had at the last look."""
        return min(self.seen.values(), default=0)

    @property
    def problem(self) -> str:
        return "; ".join(dict.fromkeys(self.wrong))

    @property
    def told(self) -> str:
        return f"{len(self.doubled)} documents count more than once" if self.doubled else ""

    def look_beside(self) -> None:
        """While others write: all of a write is there, or nothing of it."""
        target = self.lane.target
        if not target.is_atomic or not target.is_read_beside or self.wrong:
            return
        known = dict(self.seen)
        for name, found in self._look().items():
            before = known.get(name, 0)
            if problem := found.problem(excuse_doubled=True):
                self.wrong.append(f"a reader of {name} saw that {problem}")
            elif found.prefix < before and not found.doubled:
                self.wrong.append(
                    f"a reader of {name} saw {found.prefix} documents after it had seen {before}"
                )
        self.count += 1

    def look_at_end(self, written: int) -> None:
        """When all is done."""
        for name, found in self._look().items():
            self.doubled |= set(found.doubled)
            self.lost |= {*found.lost, *range(found.prefix + 1, written + 1)}
            if problem := found.problem(excuse_doubled=True):
                self.wrong.append(f"{name}: {problem}")
            if found.prefix != written:
                self.wrong.append(f"{name} has {found.prefix} of {written} documents")
        if self.keeps_state and (left := self.lane.target.left_over(self.lane.name)):
            self.wrong.append(f"left behind: {', '.join(left[:3])}")

    def _look(self) -> dict[str, Found]:
        try:
            read = self.lane.target.read(self.lane.name)
        except HeadraceError as error:
            self.wrong.append(f"it cannot be read: {error.message}")
            return {}
        found = {name: look(rows.documents, is_view=rows.is_view) for name, rows in read.items()}
        self.seen = {name: one.prefix for name, one in found.items()}
        return found


class Looker:
    """Takes turns, since each look costs the pipelines time."""

    def __init__(self, looks: Sequence[Looks]) -> None:
        self._looks = list(looks)
        self._next, self._last = 0, 0.0

    def look(self) -> None:
        """At one of them, if the last look was a while ago."""
        if not self._looks or time.monotonic() - self._last < _PAUSE:
            return
        self._looks[self._next % len(self._looks)].look_beside()
        self._next += 1
        self._last = time.monotonic()

    def look_at_all(self) -> None:
        for looks in self._looks:
            looks.look_beside()
