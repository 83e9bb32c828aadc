"""The low-water mark: the first segment of the log that is still needed. It alone allows a removal.

    low-water.json          in the data folder
    low-water/0000000007    in object storage; created, never changed, and the highest number counts

It is synced in both places before a segment that it releases is removed. So whoever finds a segment absent
that it does not release knows that something else has removed it.
"""

from __future__ import annotations

import errno
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock

import orjson

from headrace.durable import replace_file
from headrace.errors import ConfigError, EndpointUnavailable, Fenced
from headrace.faults import reached
from headrace.ingest.resends import Known, Resends
from headrace.ingest.store import SegmentStore
from headrace.objects import NoSuchObject, ObjectExists
from headrace.wal.position import LogPosition
from headrace.wal.side_segments import SideSegment
from headrace.wal.state import Range

_FILE = "low-water.json"
# A program that knows no quarantine would commit over the writes in a side log, and nobody would miss them.
# So with one the tables are called otherwise: it finds none, and refuses.
_TABLES, _TABLES_BESIDE_QUARANTINE = "tables", "tables_beside_quarantine"
_UNSURE = Resends(all_unsure=True)


@dataclass(frozen=True)
class TableMark:
    """How far a table was when segments were released."""

    position: LogPosition = field(default_factory=LogPosition)
    released: int = 0
    """The last LSN of the collection in a segment that is released."""

    @property
    def needed(self) -> int:
        """The least LSN of the table with which nothing is missing: writes that are released and not in it
        have no rows."""
        return min(self.released, self.position.lsn)


@dataclass(frozen=True)
class Quarantined:
    """A collection that is not committed, and whose writes are kept in a log of their own."""

    reason: str
    since_us: int
    segments: tuple[SideSegment, ...] = ()
    """Its side log: writes in it are needed in the log no more."""

    @property
    def through(self) -> int:
        """Every write at or below it is in the side log, or in the table."""
        return self.segments[-1].last_lsn if self.segments else 0

    @property
    def bytes(self) -> int:
        return sum(segment.length for segment in self.segments)


@dataclass(frozen=True)
class LowWater:
    number: int = 0
    term: int = 0
    boot: str = ""
    """Identifies the process that has put it."""
    first_segment: int = 1
    """Segments before it are released: their writes are in the tables."""
    first_lsn: int = 1
    """The lowest that the first segment can have."""
    tables: Mapping[str, TableMark] = field(default_factory=dict)
    lost: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    """Writes of a collection that are in neither its table nor the log, and that a person has given up."""
    resends: Mapping[str, Resends] = field(default_factory=dict)
    """What the producers of these writes are told that send them again."""
    given_up: tuple[int, ...] = ()
    """Segments that are missing, and that a person has given up."""
    quarantined: Mapping[str, Quarantined] = field(default_factory=dict)
    released_sides: tuple[tuple[str, str], ...] = ()
    """Files of side logs, by collection and name, that are not needed and may still be there. A file is among
    them before it is written, until `quarantined` names it."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """The last LSN of a collection that a person has dropped: at or below it nothing is committed any more,
    though it may still be in the log."""

    def encode(self) -> bytes:
        return orjson.dumps(
            {
                "number": self.number,
                "term": self.term,
                "boot": self.boot,
                "first_segment": self.first_segment,
                "first_lsn": self.first_lsn,
                _TABLES_BESIDE_QUARANTINE if self.quarantined else _TABLES: {
                    name: {**mark.position.to_json(), "released": mark.released}
                    for name, mark in self.tables.items()
                },
                "lost": self.lost,
                "resends": {name: one.to_json() for name, one in self.resends.items()},
                "given_up": self.given_up,
                "quarantined": {
                    name: [one.reason, one.since_us, [segment.to_json() for segment in one.segments]]
                    for name, one in self.quarantined.items()
                },
                "released_sides": self.released_sides,
                "dropped": self.dropped,
            }
        )

    @staticmethod
    def decode(data: bytes, where: str) -> LowWater:
        try:
            raw = orjson.loads(data)
            quarantined = raw.get("quarantined", {})  # an older version had none
            return LowWater(
                number=int(raw["number"]),
                term=int(raw["term"]),
                boot=str(raw.get("boot", "")),
                first_segment=int(raw["first_segment"]),
                first_lsn=int(raw["first_lsn"]),
                tables={
                    name: TableMark(LogPosition.from_json(mark), int(mark["released"]))
                    for name, mark in raw[_TABLES_BESIDE_QUARANTINE if quarantined else _TABLES].items()
                },
                lost={name: tuple((a, b) for a, b in ranges) for name, ranges in raw["lost"].items()},
                resends={name: Resends.from_json(one) for name, one in raw["resends"].items()}
                if "resends" in raw
                else dict.fromkeys(raw["lost"], _UNSURE),  # of an older version
                given_up=tuple(raw["given_up"]),
                quarantined={
                    name: Quarantined(
                        str(reason), int(since_us), tuple(SideSegment.from_json(one) for one in segments)
                    )
                    for name, (reason, since_us, segments) in quarantined.items()
                },
                released_sides=tuple((str(name), str(file)) for name, file in raw.get("released_sides", ())),
                dropped={name: int(lsn) for name, lsn in raw.get("dropped", {}).items()},
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(f"{where} is damaged: restore it from a copy") from None

    def losing(self, collection: str, first: int, last: int) -> LowWater:
        """Gives writes up of which nobody knows whose they were."""
        lost = (*self.lost.get(collection, ()), (first, last))
        # Of each producer anew: what it has written since it was last heard of may be lost as well.
        resends = replace(self.resends.get(collection, Resends()), unsure={}, all_unsure=True)
        return replace(
            self, lost={**self.lost, collection: lost}, resends={**self.resends, collection: resends}
        )

    def settled(self, known: Callable[[str, Sequence[Range]], Iterable[Known]]) -> LowWater:
        """Notes whose they may have been. `known(collection, ranges)` is what the log remembers of them."""
        unsettled = {name: one for name, one in self.resends.items() if one.all_unsure}
        settled = {name: one.with_known(known(name, self.lost[name])) for name, one in unsettled.items()}
        return replace(self, resends={**self.resends, **settled})

    @property
    def knows_tables(self) -> bool:
        """False if an older version has removed segments, which recorded nothing about it."""
        return self.number > 0 or self.first_segment == 1


def read_file(folder: Path) -> LowWater | None:
    path = folder / _FILE
    try:
        return LowWater.decode(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None


def write_file(folder: Path, mark: LowWater) -> bool:
    """Returns False if the disk is full. The object is enough then, and what it releases makes room."""
    try:
        replace_file(folder / _FILE, mark.encode())
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return False
    return True


def remove_file(folder: Path) -> None:
    """For a folder that is about to hold another part of the log's life."""
    (folder / _FILE).unlink(missing_ok=True)


def read_newest(store: SegmentStore) -> LowWater | None:
    while numbers := store.low_waters():
        with suppress(NoSuchObject):  # a server that still runs may just have replaced it
            return _read(store, numbers[-1])
    return None


def _read(store: SegmentStore, number: int) -> LowWater:
    return LowWater.decode(store.get_low_water(number), f"low-water mark {number} in {store.url}")


def newest(*marks: LowWater | None) -> LowWater | None:
    return max((mark for mark in marks if mark is not None), key=lambda mark: mark.number, default=None)


class LowWaterMark:
    """The mark of a running server, which moves it. Thread-safe.

    `is_compared` is false if the store did not say which one it has; until `adopt` it does not move, or it
    could come to stand for another history.
    """

    def __init__(
        self, mark: LowWater, folder: Path, store: SegmentStore, term: int, is_compared: bool = True
    ) -> None:
        self._mark, self._folder, self._store, self._term = mark, folder, store, term
        self._boot = secrets.token_hex(8)
        self.is_compared = is_compared
        self._is_written = True  # on a full disk the file may be behind the object
        self._is_put = True  # False: the store may have a later one, of which only the answer was lost
        self._replaced: list[int] | None = None  # objects that a later one has replaced; None: not known yet
        self._lock = Lock()

    @property
    def current(self) -> LowWater:
        return self._mark

    def move(self, change: Callable[[LowWater], LowWater]) -> None:
        """Returns when the changed mark is in object storage and on the disk."""
        with self._lock:
            if not self.is_compared:
                raise EndpointUnavailable(
                    f"the low-water mark waits for an answer of {self._store.url}, which may have a later one"
                )
            number = self._mark.number + 1
            mark = replace(change(self._mark), number=number, term=self._term, boot=self._boot)
            self._is_put = False
            while not self._put(mark):
                mark = replace(mark, number=mark.number + 1)
            if self._replaced is not None and self._mark.number:
                self._replaced.append(self._mark.number)
            self._mark, self._is_written, self._is_put = mark, False, True
            self._write()

    def settle(self) -> None:
        """Returns when the store's newest mark is this one: what it names is relied on at the next start."""
        if not self._is_put:
            self.move(lambda same: same)

    def adopt(self, stored: LowWater | None) -> None:
        """Goes by the mark of the store, where that is newer; a store that is behind gets this one."""
        with self._lock:
            behind = stored.number if stored is not None else 0
            if stored is not None and stored.number > self._mark.number:
                self._mark, self._is_written = stored, False
            elif behind < self._mark.number:
                self._put(self._mark)
            self.is_compared = True

    def tidy(self) -> None:
        """Writes the file that a full disk had no room for, and removes objects that are replaced."""
        with self._lock:
            if not self._is_written:
                self._write()
            if self._replaced is None:
                self._replaced = [one for one in self._store.low_waters() if one < self._mark.number]
            while self._replaced:
                self._store.remove_low_water(self._replaced[0])
                self._replaced.pop(0)

    def _put(self, mark: LowWater) -> bool:
        """Returns False if the number is taken, by a replaced server, or by this one before it knew."""
        reached("low water putting")
        try:
            self._store.put_low_water(mark.number, mark.encode(), self._term)
        except ObjectExists:
            there = _read(self._store, mark.number)
            if there.term >= self._term and there.boot != self._boot:
                raise self._is_of_another(there.number) from None
            return False
        # A server that has gone on from the same mark may have removed its own of this number.
        if (newest := max(self._store.low_waters(), default=0)) > mark.number:
            raise self._is_of_another(newest)
        reached("low water put")
        return True

    def _is_of_another(self, number: int) -> Fenced:
        return Fenced(
            f"another server has moved the low-water mark in {self._store.url} to {number} in the same term: "
            "this data folder or that one is a copy; stop this one, or start it with a new data folder",
            fence=self._term,
        )

    def _write(self) -> None:
        self._is_written = write_file(self._folder, self._mark)
        reached("low water written")
