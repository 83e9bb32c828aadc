"""Keeps which sequence numbers of which producers a log holds, and under which LSNs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headrace.wal.records import Writes
from headrace.wal.recovery import Recovered


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


def remembered(
    runs: Mapping[tuple[str, str], list[Run]], recovered: Recovered
) -> dict[tuple[str, str], list[Run]]:
    """Returns the runs of the producers that the log's state knows, of each without what is before a gap that
    missing segments have left. What it wrote in the gap is not known; a run before would make the numbers of
    the gap look as if the producer had left them out.
    """
    kept = {}
    # The state may have forgotten one of whom a segment is still there.
    for name in runs.keys() & recovered.state.producers.keys():
        last_lsn = recovered.state.producers[name].last_lsn
        gap_end = max((last for first, last in recovered.missing if first <= last_lsn), default=0)
        if rest := [run for run in runs[name] if run.lsn > gap_end]:
            kept[name] = rest  # else the state alone says which number was the last
    return kept


def collect_into(runs: dict[tuple[str, str], list[Run]]) -> Callable[[str, Writes], None]:
    """Returns what notes down the runs of producers as a log is read."""

    def collect(collection: str, writes: Writes) -> None:
        if writes.producer:
            runs[collection, writes.producer].append(Run(writes.first_seq, writes.first_lsn, writes.count))

    return collect
