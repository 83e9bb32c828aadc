"""What the Iceberg tables hold, as pyiceberg reads them, and whether it is what was promised."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import WriteLost
from headrace.model.tiers import Tier
from tests.crash.ingest.journal import Journal, Write

Ranges = Sequence[Sequence[int]]


@dataclass
class Found:
    """The rows of all tables, by write."""

    places: dict[str, list[tuple[int, int, int]]] = field(default_factory=lambda: defaultdict(list))
    """For each write its rows: the number that we gave the row, `_lsn` and `_row`."""
    names: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Which writes have rows under an LSN."""
    repeated: list[tuple[int, int]] = field(default_factory=list)
    """`_lsn` and `_row` that are there more than once."""

    def lsns(self, name: str) -> set[int]:
        return {lsn for _, lsn, _ in self.places.get(name, ())}


def read_tables(catalog: Catalog, namespace: str) -> Found:
    found = Found()
    places: Counter[tuple[int, int]] = Counter()
    for identifier in catalog.list_tables(namespace):
        rows = catalog.load_table(identifier).scan().to_arrow()
        columns = [rows.column(name).to_pylist() for name in ("id", "number", "_lsn", "_row")]
        for name, number, lsn, row in zip(*columns, strict=True):
            found.places[name].append((number, lsn, row))
            found.names[lsn].add(name)
            places[lsn, row] += 1
    found.repeated = [place for place, count in places.items() if count > 1]
    return found


def assert_exactly_once(journal: Journal, found: Found, lost: Ranges, binding: Tier) -> None:
    """Once everything is flushed: what was told, at the binding tier or above, is so, and nothing else is.

    Everything with a producer is there once, unless its client was told that it is lost.
    """
    writes = journal.writes.values()
    assert not found.repeated, f"rows twice: {some(found.repeated)}"
    assert not set(found.places) - set(journal.writes), "rows that nobody wrote"
    broken = [write.name for write in writes if write.name in found.places and not _is_whole(write, found)]
    assert not broken, f"writes that are there in part, or more than once: {some(broken)}"
    missing = [write for write in writes if _must_be_there(write, binding) and write.name not in found.places]
    assert not missing, f"writes that are not there: {some(missing)}"
    undead = [write for write in writes if isinstance(write.error, WriteLost) and write.name in found.places]
    assert not undead, (
        f"writes that are there, though their client was told that they are lost: {some(undead)}"
    )
    moved = [
        write for write in writes for lsn in _promised(write, binding) if lsn not in found.lsns(write.name)
    ]
    assert not moved, f"writes that are there under another LSN than was told: {some(moved)}"
    assert_no_lsn_twice(journal, found)
    _assert_lost_are_nowhere(journal, found, lost, binding)


def assert_no_lsn_twice(journal: Journal, found: Found) -> None:
    reused = {
        lsn: names
        for lsn in journal.given.keys() | found.names.keys()
        if len(names := journal.given.get(lsn, set()) | found.names.get(lsn, set())) > 1
    }
    assert not reused, f"LSNs of several writes: {some(reused.items())}"


def assert_snapshots_hold_writes(journal: Journal, catalog: Catalog, namespace: str) -> None:
    """A COMMITTED notice names a snapshot that is in the table's history, and that the write was in."""
    by_table = {
        name: _Snapshots(catalog.load_table((namespace, name))) for _, name in catalog.list_tables(namespace)
    }
    early = [
        write
        for write in journal.writes.values()
        if write.snapshot_id is not None
        and not by_table[write.collection].has(write.snapshot_id, write.told[Tier.COMMITTED])
    ]
    assert not early, f"writes that were not in the snapshot that they were told: {some(early)}"


class _Snapshots:
    def __init__(self, table: Table) -> None:
        self._order = {snapshot.snapshot_id: place for place, snapshot in enumerate(table.metadata.snapshots)}
        self._added: dict[int, int] = {}
        entries = table.inspect.entries()
        files = [file["file_path"] for file in entries.column("data_file").to_pylist()]
        for path, snapshot_id in zip(files, entries.column("snapshot_id").to_pylist(), strict=True):
            with table.io.new_input(path).open() as file:
                lsns = pq.read_table(file, columns=["_lsn"]).column("_lsn").to_pylist()
            self._added |= dict.fromkeys(lsns, self._order[snapshot_id])

    def has(self, snapshot_id: int, lsn: int) -> bool:
        return self._added.get(lsn, len(self._order)) <= self._order.get(snapshot_id, -1)


def _is_whole(write: Write, found: Found) -> bool:
    """All rows, once each, under one LSN, and numbered as they were written."""
    places = sorted(found.places[write.name])
    return len(found.lsns(write.name)) == 1 and [(number, row) for number, _, row in places] == [
        (number, number) for number in range(write.rows)
    ]


def _must_be_there(write: Write, binding: Tier) -> bool:
    if write.is_once:
        return not isinstance(write.error, WriteLost)
    return any(tier >= binding for tier in write.told)


def _promised(write: Write, binding: Tier) -> set[int]:
    """LSNs that it must be found under; 0 stands for one that is no longer remembered."""
    if isinstance(write.error, WriteLost):
        return set()
    return {lsn for tier, lsn in write.told.items() if tier >= binding and lsn}


def _assert_lost_are_nowhere(journal: Journal, found: Found, lost: Ranges, binding: Tier) -> None:
    def is_lost(lsn: int) -> bool:
        return any(first <= lsn <= last for first, last in lost)

    there = [lsn for lsn in found.names if is_lost(lsn)]
    assert not there, f"LSNs that are lost, as the server says, and are in a table: {some(there)}"
    unexplained = [lsn for lsn in journal.given if lsn not in found.names and not is_lost(lsn)]
    assert not unexplained, (
        f"LSNs that are neither in a table nor lost, as the server says: {some(unexplained)}"
    )
    promised = [lsn for write in journal.writes.values() for lsn in _promised(write, binding) if is_lost(lsn)]
    assert not promised, f"LSNs that are lost, as the server says, and had been promised: {some(promised)}"


def some(things: Iterable[object]) -> str:
    """Not all of a hundred thousand."""
    shown = list(islice(things, 4))
    return f"{', '.join(map(str, shown[:3]))}{', ...' if len(shown) > 3 else ''}"
