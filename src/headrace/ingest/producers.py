"""Keeps which sequence numbers of which producers a log holds, and under which LSNs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.wal.records import Writes


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive sequence numbers with consecutive LSNs."""

    seq: int
    lsn: int
    count: int


def joined(
    earlier: Mapping[tuple[str, str], list[Run]], later: Mapping[tuple[str, str], list[Run]]
) -> dict[tuple[str, str], list[Run]]:
    """Returns the runs of side logs, then those of the log, which may have some of them still."""
    runs = dict(later)
    for name, found in earlier.items():
        last = max(run.lsn + run.count - 1 for run in found)
        runs[name] = [*found, *(run for run in later.get(name, ()) if run.lsn > last)]
    return runs


def collect_into(runs: dict[tuple[str, str], list[Run]]) -> Callable[[str, Writes], None]:
    """Returns what notes down the runs of producers as a log is read."""

    def collect(collection: str, writes: Writes) -> None:
        if writes.producer:
            runs[collection, writes.producer].append(Run(writes.first_seq, writes.first_lsn, writes.count))

    return collect
