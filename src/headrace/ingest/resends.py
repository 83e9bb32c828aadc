"""What a producer is told that sends again what a person has given up.

Such a write is in no table. So it must not be forgotten as those are that were committed: whoever sends it
again would hear that it is in the table.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import merge
from typing import Any

from headrace.ingest.producers import Run
from headrace.wal.state import Range

# Of one collection. They are in the low-water mark, which is written with every release.
_MOST_RUNS = 100_000
_MOST_UNSURE = 100_000


@dataclass(frozen=True, slots=True)
class Known:
    """What the log remembers of a producer when its writes are given up."""

    producer: str
    last_seq: int
    crowded_out: int
    """The last number that was forgotten for want of room, whether it was committed or not; or 0."""
    runs: tuple[Run, ...]
    """Of the writes that are given up."""


@dataclass(frozen=True)
class Resends:
    """What is known of the producers of one collection."""

    runs: Mapping[str, tuple[Run, ...]] = field(default_factory=dict)
    """What was given up, by producer, in order."""
    unsure: Mapping[str, int] = field(default_factory=dict)
    """Of these producers' writes up to a number nobody knows which were given up, except for `runs`."""
    all_unsure: bool = False
    """Nor of any write of any producer. `unsure` is empty then: it is not known yet, or was too large."""

    def with_known(self, known: Iterable[Known]) -> Resends:
        """Adds what the log remembers, of all producers that it knows; the others cannot resend anything."""
        runs: dict[str, tuple[Run, ...]] = {}
        unsure: dict[str, int] = {}
        for one in known:
            if both := _joined(self.runs.get(one.producer, ()), one.runs):
                runs[one.producer] = both
            until = max(self.unsure.get(one.producer, 0), one.crowded_out if one.runs else 0)
            if self.all_unsure:
                until = one.last_seq
            if until:
                unsure[one.producer] = until
        return _bounded(Resends(runs, unsure))

    def without(self, lost: Sequence[Range]) -> Resends:
        """Cuts off what had died with a process, and what may have been written anew since."""
        unsure = dict(self.unsure)
        runs = {}
        for producer, before in self.runs.items():
            kept = [_until_lost(run, lost) for run in before]
            for run, rest in zip(before, kept, strict=True):
                if rest.count < run.count:
                    unsure[producer] = max(unsure.get(producer, 0), run.seq + run.count - 1)
            runs[producer] = tuple(run for run in kept if run.count)
        return replace(self, runs=runs, unsure=unsure)

    def to_native(self) -> list[tuple[str, int, list[tuple[int, int, int]]]]:
        return [
            (
                producer,
                self.unsure.get(producer, 0),
                [(run.seq, run.lsn, run.count) for run in self.runs.get(producer, ())],
            )
            for producer in self.runs.keys() | self.unsure.keys()
        ]

    def to_json(self) -> dict[str, Any]:
        runs = {producer: [[one.seq, one.lsn, one.count] for one in of] for producer, of in self.runs.items()}
        return {"runs": runs, "unsure": self.unsure, "all_unsure": self.all_unsure}

    @staticmethod
    def from_json(raw: dict[str, Any]) -> Resends:
        return Resends(
            {producer: tuple(Run(*map(int, one)) for one in of) for producer, of in raw["runs"].items()},
            {producer: int(seq) for producer, seq in raw["unsure"].items()},
            bool(raw["all_unsure"]),
        )


def _joined(before: Sequence[Run], new: Sequence[Run]) -> tuple[Run, ...]:
    """Returns all of them in the order of their LSNs, each write once."""
    joined: list[Run] = []
    for run in merge(before, new, key=lambda run: run.lsn):
        last = joined[-1] if joined else Run(0, 0, 0)
        known = min(max(last.lsn + last.count - run.lsn, 0), run.count)
        rest = Run(run.seq + known, run.lsn + known, run.count - known)
        if (last.seq + last.count, last.lsn + last.count) == (rest.seq, rest.lsn) and joined:
            joined[-1] = Run(last.seq, last.lsn, last.count + rest.count)
        elif rest.count:
            joined.append(rest)
    return tuple(joined)


def _bounded(all_: Resends) -> Resends:
    """Drops the oldest runs if there are too many; whether those were given up is not known any more then."""
    runs, unsure = dict(all_.runs), dict(all_.unsure)
    by_age = sorted((run.lsn, producer) for producer, of in runs.items() for run in of)
    if len(by_age) > _MOST_RUNS:
        first, _ = by_age[-_MOST_RUNS // 2]
        for producer, of in all_.runs.items():
            runs[producer] = tuple(run for run in of if run.lsn >= first)
            if gone := [run for run in of if run.lsn < first]:
                unsure[producer] = max(unsure.get(producer, 0), gone[-1].seq + gone[-1].count - 1)
    is_too_many = len(unsure) > _MOST_UNSURE
    return Resends(
        {producer: of for producer, of in runs.items() if of}, {} if is_too_many else unsure, is_too_many
    )


def _until_lost(run: Run, lost: Sequence[Range]) -> Run:
    """Returns what of a run is before the ranges that are lost, which are in order."""
    at = bisect_right(lost, run.lsn, key=lambda one: one[0])
    if at and lost[at - 1][1] >= run.lsn:
        return replace(run, count=0)
    first = lost[at][0] if at < len(lost) else run.lsn + run.count
    return replace(run, count=min(run.count, first - run.lsn))
