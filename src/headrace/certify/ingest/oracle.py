"""What the Iceberg tables hold, as pyiceberg reads them, and whether it is what was promised."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.certify.ingest.journal import Journal, Write
from headrace.errors import WriteLost
from headrace.model.tiers import Tier

Ranges = Sequence[Sequence[int]]
Released = Collection[tuple[str, int]]
"""Writes by name, with the LSN under which they were told to be at LOCAL_DISK, whose disk was lost since."""


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


@dataclass(frozen=True)
class Finding:
    """Something that is not as it was promised."""

    text: str
    is_twice: bool = False
    """Nothing is lost or wrong, but something is there more than once."""


@dataclass(frozen=True)
class EndState:
    """What there is once everything is flushed."""

    journal: Journal
    found: Found
    lost: Ranges
    """As the server says."""
    said: Mapping[int, str]
    """What the server says of LSNs that it has given away: COMMITTED, or LOST."""
    early: Sequence[Write]
    """Whose notice names a snapshot that they were not in."""

    def findings(self, binding: Tier, released: Released = ()) -> list[Finding]:
        """What was told, at the binding tier or above, is so, and nothing else is.

        Everything with a producer is there once, or its client was told that it is lost before it got there.
        """
        found, writes = self.found, self.journal.writes.values()
        there = [write for write in writes if write.name in found.places]
        promised = [(write, lsn) for write in writes for lsn in _promised(write, binding, released) if lsn]
        missing = [
            write
            for write in writes
            if _must_be_there(write, binding, released) and write.name not in found.places
        ]
        moved = [write for write, lsn in promised if lsn not in found.lsns(write.name)]
        broken = [lsn for _, lsn in promised if self._is_lost(lsn)]
        doubled = [write.name for write in there if _is_doubled(write, found)]
        partial = [write.name for write in there if not _is_whole(write, found) and write.name not in doubled]
        return [
            *_twice("rows twice", found.repeated),
            *_twice("writes that are there more than once", doubled),
            *_wrong("writes that are there in part", partial),
            *_wrong("rows that nobody wrote", set(found.places) - set(self.journal.writes)),
            *_wrong("writes that are not there", missing),
            *_wrong("writes that are there under another LSN than was told", moved),
            *_wrong("LSNs that are lost, as the server says, and had been promised", broken),
            *_wrong("writes that were not in the snapshot that they were told", self.early),
            *self.findings_of_memory(),
        ]

    def findings_of_memory(self) -> list[Finding]:
        """That a write had its LSN for itself, and that what is lost is known to be."""
        found, given, writes = self.found, self.journal.given, self.journal.writes.values()
        undead = [
            write for write in writes if isinstance(write.error, WriteLost) and write.name in found.places
        ]
        unexplained = [lsn for lsn in given if lsn not in found.names and not self._is_lost(lsn)]
        wrong = [
            lsn for lsn, told in self.said.items() if told != ("COMMITTED" if lsn in found.names else "LOST")
        ]
        return [
            *_wrong("writes that are there, though their client was told that they are lost", undead),
            *_wrong("LSNs of several writes", self._reused()),
            *_wrong(
                "LSNs that are lost, as the server says, and are in a table",
                [lsn for lsn in found.names if self._is_lost(lsn)],
            ),
            *_wrong("LSNs that are neither in a table nor lost, as the server says", unexplained),
            *_wrong("LSNs of which the server says something else than the tables", wrong),
            *_wrong("writes that were told out of their order", self.journal.disordered),
        ]

    def _reused(self) -> list[tuple[int, set[str]]]:
        given, names = self.journal.given, self.found.names
        both = {lsn: given.get(lsn, set()) | names.get(lsn, set()) for lsn in given.keys() | names.keys()}
        return [(lsn, writes) for lsn, writes in both.items() if len(writes) > 1]

    def _is_lost(self, lsn: int) -> bool:
        return any(first <= lsn <= last for first, last in self.lost)


def snapshots_not_holding(journal: Journal, catalog: Catalog, namespace: str) -> list[Write]:
    """Writes whose COMMITTED notice names a snapshot that is not in the table's history, or without them."""
    by_table = {
        name: _Snapshots(catalog.load_table((namespace, name))) for _, name in catalog.list_tables(namespace)
    }
    return [
        write
        for write in journal.writes.values()
        if write.snapshot_id is not None
        and not by_table[write.collection].has(write.snapshot_id, write.told[Tier.COMMITTED])
    ]


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


def _must_be_there(write: Write, binding: Tier, released: Released) -> bool:
    return bool(_promised(write, binding, released)) or (
        write.is_once and not isinstance(write.error, WriteLost)
    )


def _promised(write: Write, binding: Tier, released: Released) -> set[int]:
    """LSNs that it must be found under; 0 stands for one that is no longer remembered."""
    return {
        lsn
        for tier, lsn in write.told.items()
        if tier >= binding and (tier > Tier.LOCAL_DISK or (write.name, lsn) not in released)
    }


def _is_doubled(write: Write, found: Found) -> bool:
    """All rows, and some of them again, or all under each of several LSNs."""
    places = found.places[write.name]
    whole = {(number, lsn, number) for number in range(write.rows) for lsn in found.lsns(write.name)}
    return len(places) > write.rows and set(places) == whole


def _twice(what: str, things: Iterable[object]) -> list[Finding]:
    return [Finding(f"{what}: {text}", is_twice=True)] if (text := some(things)) else []


def _wrong(what: str, things: Iterable[object]) -> list[Finding]:
    return [Finding(f"{what}: {text}")] if (text := some(things)) else []


def some(things: Iterable[object]) -> str:
    """Not all of a hundred thousand."""
    shown = list(islice(things, 4))
    return f"{', '.join(map(str, shown[:3]))}{', ...' if len(shown) > 3 else ''}"
