"""What is wrong with an Iceberg table, by its own history and without Spark."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from urllib.parse import quote

from pyiceberg.manifest import ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from headrace.sinks.audits import ahead, behind, keys_twice
from headrace.sinks.contract import Place
from headrace.sinks.iceberg_places import load_table, read_rows
from headrace.sinks.iceberg_tables import EPOCH, REWOUND, SINK, WRITER

# Under which others say what a snapshot is: whose, and which epoch of his. Flink may leave numbers out.
_STREAMS = (
    ("spark.sql.streaming.queryId", "spark.sql.streaming.epochId", True),
    ("flink.job-id", "flink.max-committed-checkpoint-id", False),
)


def audit(place: Place, decided: Mapping[int, int], last: Callable[[], int] | None) -> Iterator[str]:
    """Of a table that we write; `decided` are the rows of each epoch that is to be there."""
    table = load_table(place)
    if table is None:
        if any(decided.values()):
            yield f"table {place.location} is not there, and has had epochs up to {max(decided)}"
        return
    found, told = _epochs(table, place.writer), _last_epoch(table, place.writer)
    for sink, epochs in found.items():
        yield from _repeated(f"epoch {{}} of sink {sink!r}", epochs.times)
    yield from behind(told, decided)
    if place.is_view:
        yield from ahead(told, decided, last)
        # None of ours is left if somebody rolled the table back.
        if len(found) <= 1:
            yield from _missing(next(iter(found.values()), _Epochs(is_whole=_is_whole(table))), decided)
        yield from keys_twice(read_rows(place, place.keys, None), place.keys, place.location)
    yield from _double_files(table)


def audit_foreign(table: Table) -> Iterator[str]:
    """Of a table that anybody wrote: rows that are there twice, and epochs that are missing or there twice.

    Epochs are known of the streaming writers that say which one a snapshot is: Spark's and Flink's.
    """
    for whose, number, is_gapless in _STREAMS:
        streams: defaultdict[str, Counter[int]] = defaultdict(Counter)
        for _, summary in _summaries(table):
            if whose in summary and number in summary:
                streams[summary[whose]][int(summary[number])] += 1
        for stream, times in streams.items():
            yield from _repeated(f"epoch {{}} of {stream}", times)
            for before, after in pairwise(sorted(times)) if is_gapless else ():
                if after > before + 1:
                    yield f"the epochs of {stream} go from {before} to {after}: those between are missing"
    yield from _double_files(table)


@dataclass
class _Epochs:
    times: Counter[int] = field(default_factory=Counter)
    rows: dict[int, int] = field(default_factory=dict)
    is_whole: bool = True
    """Whether the history goes back to the table's beginning."""

    def take_back(self, epoch: int) -> None:
        for later in [number for number in self.times if number > epoch]:
            del self.times[later]
            self.rows.pop(later, None)


def _epochs(table: Table, writer: str) -> dict[str, _Epochs]:
    """What the history of main says, by sink."""
    found: defaultdict[str, _Epochs] = defaultdict(_Epochs)
    is_whole = _is_whole(table)
    for _, summary in _summaries(table):
        if summary.get(WRITER) != writer:
            continue
        epochs = found[summary.get(SINK, "")]
        epochs.is_whole = is_whole
        if REWOUND in summary:
            epochs.take_back(int(summary[REWOUND]))
        elif EPOCH in summary:
            epochs.times[int(summary[EPOCH])] += 1
            epochs.rows[int(summary[EPOCH])] = int(summary.get("added-records", 0))
    return dict(found)


def _is_whole(table: Table) -> bool:
    """Whether the history of main goes back to where it began."""
    first, _ = next(_summaries(table), (None, {}))
    return first is None or first.parent_snapshot_id is None


def _missing(epochs: _Epochs, decided: Mapping[int, int]) -> Iterator[str]:
    """Where the history is long enough to tell; rows of a view are counted as they came."""
    first = -1 if epochs.is_whole else min(epochs.times, default=max(decided, default=-1) + 1)
    for epoch, rows in sorted(decided.items()):
        there = epochs.rows.get(epoch)
        if rows and epoch >= first and there is None:
            yield f"epoch {epoch} was committed with {rows} rows, and the history has no snapshot of it"
        elif there is not None and there != rows:
            yield f"epoch {epoch} was committed with {rows} rows, and its snapshot brought {there}"


def _last_epoch(table: Table, writer: str) -> int:
    prefix = f"headrace.epoch/{quote(writer, safe='')}/"
    told = [int(value) for name, value in table.properties.items() if name.startswith(prefix)]
    return max(told, default=-1)


def _repeated(name: str, times: Mapping[int, int]) -> Iterator[str]:
    for epoch, count in sorted(times.items()):
        if count > 1:
            yield f"{name.format(epoch)} was published {count} times"


def _double_files(table: Table) -> Iterator[str]:
    added: defaultdict[str, list[int]] = defaultdict(list)
    for snapshot, _ in _summaries(table):
        for manifest in snapshot.manifests(table.io):
            if manifest.content != ManifestContent.DATA or manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                if entry.status == ManifestEntryStatus.ADDED:
                    added[entry.data_file.file_path].append(snapshot.snapshot_id)
    for path, snapshots in sorted(added.items()):
        if len(snapshots) > 1:
            yield f"{path} was added by {len(snapshots)} snapshots: {', '.join(map(str, snapshots))}"
    live = Counter(task.file.file_path for task in table.scan().plan_files())
    for path, count in sorted(live.items()):
        if count > 1:
            yield f"{path} is in the table {count} times, and so are its rows"


def _summaries(table: Table) -> Iterator[tuple[Snapshot, dict[str, str]]]:
    """The snapshots of main as far as they have not expired, the first one first."""
    history = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        history.append(snapshot)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    for one in reversed(history):
        yield one, dict(one.summary.additional_properties) if one.summary is not None else {}
