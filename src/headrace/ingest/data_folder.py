"""The server's folder: who uses it, where it is, and which part of the log's life it belongs to."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.durable import replace_file
from headrace.errors import ConfigError, EndpointUnavailable, Fenced, Transient
from headrace.faults import reached
from headrace.ingest import low_water
from headrace.ingest.low_water import LowWater, LowWaterMark
from headrace.ingest.store import SegmentStore
from headrace.ingest.table_history import is_of_another_history
from headrace.model.lsn import RESERVED_AT_ONCE, last_lsn_of
from headrace.wal.position import LogPosition
from headrace.wal.recovery import OnWrites, Recovered, recover
from headrace.wal.segments import CorruptLog, Segment, number_of, segment_files

log = logging.getLogger(__name__)

_LOCK = "lock"
_IDENTITY = "identity.json"
_LOG = "wal"
_MACHINE_ID = Path("/etc/machine-id")

Place = tuple[str, int, int, int]
"""Machine, device and inode of the lock, and when that was last changed: a copy has another one."""
AskTables = Callable[[str, Iterable[str]], Mapping[str, LogPosition]]
"""Takes the log's id and collections, and returns how far their tables are; raises a `Transient` error if
they do not say."""


@dataclass(frozen=True)
class Identity:
    """Which log the folder holds, and in which of its terms."""

    log_id: str
    term: int
    """In the file it is called `epoch`, as it was before pipelines had epochs too."""
    place: Place | None = None
    """Where the folder was when a server last used it; None if an older version wrote it."""
    claiming: int | None = None
    """The term that a server was about to claim for the folder, if it did not come to write it down."""


class OldCopy(Fenced):
    """The data folder lacks what its own term has already put into object storage."""


@dataclass
class Opened:
    """A log that is ready to go on."""

    identity: Identity
    recovered: Recovered
    low_water: LowWater
    is_proven: bool = True
    """False if its store did not answer, so that `prove` has to be called before anything is put there."""


class DataFolder:
    """Held by one process at a time. `given_up` names what a person has given up: see `_give_up`."""

    def __init__(self, path: Path, given_up: Collection[str] = ()) -> None:
        self.path = path
        self.log = path / _LOG
        self._given_up = given_up
        try:
            self.log.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o640)
        except OSError as error:
            raise ConfigError(f"data folder {path}: {error.strerror}: choose another with --data") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConfigError(
                f"data folder {path} is in use by another server: stop it, or choose another with --data"
            ) from None

    def close(self) -> None:
        """Once or more: the number of a descriptor that is closed may already be another's."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def open_log(self, store: SegmentStore, on_writes: OnWrites, ask_tables: AskTables) -> Opened:
        """Returns the log as it is here, or, where nothing is or it is an old copy, as object storage has it.

        A folder that is where it was may go on without its store. A copied or moved one may not, nor without
        its tables: where it was made, the log may have gone on. It goes on in a new term, so that a server of
        the folder that it was copied from is fenced off.
        """
        reached("log opening")
        identity = self._identity()
        if identity is None or not segment_files(self.log):
            return self._take_over(store, on_writes)
        is_moved = identity.place not in (None, self._place())
        try:
            opened = self._go_on(identity, store, on_writes, ask_tables if is_moved else None)
        except OldCopy as behind:
            log.warning("%s; the log goes on from object storage, in a new term", behind.message)
            return self._take_over(store, on_writes)
        if identity.place != self._place() or identity.term != opened.identity.term:
            opened.identity = replace(opened.identity, place=self._place())
            self._write(opened.identity)
        return opened

    def prove(self, store: SegmentStore, identity: Identity, newest: int) -> LowWater | None:
        """Returns what the store says is needed, once it is known that the log has not gone on elsewhere.

        `newest` is the last segment that was here before this process began one.
        """
        store.join(identity.log_id, identity.term)
        store.check_owner(identity.claiming or identity.term)
        mark = low_water.read_newest(store)
        if store.has_later(newest, identity.term) or (mark and mark.first_segment > newest):
            raise OldCopy(
                f"the data folder {self.path} ends with segment {newest}, and {store.url} has had later ones "
                "of its term, so it is an old copy",
                fence=identity.term,
            )
        return mark

    def prove_late(self, store: SegmentStore, identity: Identity, newest: int) -> LowWater | None:
        """Does so for a server that has already taken writes to the disk."""
        try:
            return self.prove(store, identity, newest)
        except OldCopy as error:
            raise OldCopy(
                f"{error.message}: restart the server, and it goes on from object storage in a new term; "
                "what only this disk has is lost then, and put aside",
                fence=identity.term,
            ) from None

    def _go_on(
        self, identity: Identity, store: SegmentStore, on_writes: OnWrites, ask_tables: AskTables | None
    ) -> Opened:
        """Asks the tables, and insists on the store, only if `ask_tables` is given."""
        newest = number_of(segment_files(self.log)[-1])
        local, stored = low_water.read_file(self.path), None
        if local is not None and local.first_segment > newest:
            raise OldCopy(f"{self.log} ends with segment {newest}, and {local.first_segment} is needed")
        is_proven = True
        try:
            stored = self.prove(store, identity, newest)
        except EndpointUnavailable as error:
            if ask_tables is not None:
                raise self._needs("store", error) from None
            # It is asked again before the first upload; until then writes are taken to the disk.
            log.warning("%s", error.message)
            is_proven = False
        mark = self._complete(low_water.newest(local, stored), store, identity.term, is_proven)
        if is_proven:
            mark = self._record(mark, stored, store, identity.term)
        if ask_tables is not None:
            self._refuse_if_behind(identity, self._recover(mark), ask_tables)
        recovered = self._recover(mark, on_writes)
        mark = self._note_missing(mark, recovered, store, identity.term, is_proven)
        is_used_up = recovered.state.reserved_until + 2 * RESERVED_AT_ONCE > last_lsn_of(identity.term)
        if ask_tables is not None or is_used_up or identity.claiming is not None:
            identity = self._claim(identity, mark, recovered.segments, store)
        recovered.start_term(identity.term)
        return Opened(identity, recovered, mark, is_proven)

    def _claim(
        self, identity: Identity, mark: LowWater, segments: Sequence[Segment], store: SegmentStore
    ) -> Identity:
        """Claims a new term for the folder, and looks once more: until the claim another server may have gone
        on. The folder says so before, or a process that dies in between would be fenced off by its own claim.
        """

        def announce(term: int) -> None:
            self._write(replace(identity, claiming=term))

        term = store.claim_term(announce)
        newest = segments[-1].header.number if segments else 0
        stored = self.prove(store, replace(identity, claiming=term), newest)
        is_longer = store.is_there(newest) and not store.has(segments[-1])
        if is_longer or (stored is not None and stored.number > mark.number):
            raise OldCopy(
                f"a server in another folder went on with the log after {self.path} was copied from there",
                fence=identity.term,
            )
        return replace(identity, term=term, claiming=None)

    def _take_over(self, store: SegmentStore, on_writes: OnWrites) -> Opened:
        log_id = store.log_id()
        self._put_aside()
        # Until all is here nothing says so: a process that ends on the way has to begin again.
        (self.path / _IDENTITY).unlink(missing_ok=True)
        low_water.remove_file(self.path)
        identity = Identity(log_id, store.claim_term(), self._place())
        stored = low_water.read_newest(store)
        mark = self._complete(stored, store, identity.term)
        mark = self._record(mark, stored, store, identity.term)
        recovered = self._recover(mark, on_writes)
        mark = self._note_missing(mark, recovered, store, identity.term, is_proven=True)
        recovered.start_term(identity.term)
        self._write(identity)
        return Opened(identity, recovered, mark)

    def _complete(
        self, mark: LowWater | None, store: SegmentStore, term: int, is_proven: bool = True
    ) -> LowWater:
        """Takes from the store what is needed and not here, and removes what is here and not needed."""
        here = {number_of(path) for path in segment_files(self.log)}
        if mark is None and 1 in here:
            mark = LowWater()  # nothing was ever removed
        if mark is None or not here or not here.issuperset(_needed(mark, max(here))):
            mark = self._fetch(mark, here, store, term, is_proven)
        for path in segment_files(self.log):
            if number_of(path) < mark.first_segment:
                path.unlink()
        return mark

    def _record(self, mark: LowWater, stored: LowWater | None, store: SegmentStore, term: int) -> LowWater:
        """Writes down a mark where there is none, or an older one: with one the first segment cannot get lost
        unnoticed, and the folder can start without its store."""
        if mark.number:
            low_water.write_file(self.path, mark)
            if stored is None or stored.number < mark.number:
                store.put_low_water(mark.number, mark.encode(), term)
        if mark.number or mark.first_segment > 1:
            return mark
        recorded = LowWaterMark(mark, self.path, store, term)
        recorded.move(lambda same: same)
        return recorded.current

    def _fetch(
        self, mark: LowWater | None, here: set[int], store: SegmentStore, term: int, is_proven: bool
    ) -> LowWater:
        there = set(store.numbers())
        if mark is None:  # a new log, or one that an older version wrote, which removed from the front
            mark = LowWater(first_segment=_first_of_run(here, there))
        # Before a release the first segment may never have got into the store; after one it must have.
        needed = _needed(
            mark, max(here or there, default=mark.first_segment if mark.first_segment > 1 else 0)
        )
        missing = needed - here - there
        if missing:
            mark = self._give_up(missing, mark, store, term, is_proven)
        wanted = sorted((needed - here) & there)
        if wanted:
            log.warning("recovering %d segments from %s", len(wanted), store.url)
        for number in wanted:
            store.fetch(number, self.log)
        return mark

    def _give_up(
        self, missing: set[int], mark: LowWater, store: SegmentStore, term: int, is_proven: bool
    ) -> LowWater:
        what = f"log:{min(missing)}-{max(missing)}"
        if what not in self._given_up:
            raise CorruptLog(
                f"segments {min(missing)} to {max(missing)} ({len(missing)} missing) are needed, and are "
                f"neither in {self.log} nor in {store.url}: restore them from a copy, or go on without their "
                f"writes, which are lost then, with --accept-loss {what}"
            )
        log.warning("going on without segments %d to %d, as --accept-loss says", min(missing), max(missing))
        given_up = LowWaterMark(mark, self.path, store, term, is_compared=is_proven)
        given_up.move(lambda mark: replace(mark, given_up=tuple(sorted({*mark.given_up, *missing}))))
        return given_up.current

    def _recover(self, mark: LowWater, on_writes: OnWrites = lambda _, __: None) -> Recovered:
        recovered = recover(self.log, on_writes, mark.given_up)
        recovered.first_number = max(mark.first_segment, *(number + 1 for number in mark.given_up), 1)
        first = recovered.segments[0].header if recovered.segments else None
        if first is not None and mark.first_segment < first.number and mark.first_lsn < first.first_lsn:
            recovered.lose(mark.first_lsn, first.first_lsn - 1)
        return recovered

    def _note_missing(
        self, mark: LowWater, recovered: Recovered, store: SegmentStore, term: int, is_proven: bool
    ) -> LowWater:
        """Records once that the writes of missing segments are lost. Nobody knows whose they were, so each
        collection that there was may lack some."""
        recorded = {one for ranges in mark.lost.values() for one in ranges}
        new = [one for one in recovered.missing if one not in recorded]
        if not new or not recovered.state.collections:
            return mark

        def without(mark: LowWater) -> LowWater:
            for name in recovered.state.collections:
                for first, last in new:
                    mark = mark.losing(name, first, last)
            return mark

        noted = LowWaterMark(mark, self.path, store, term, is_compared=is_proven)
        noted.move(without)
        return noted.current

    def _refuse_if_behind(self, identity: Identity, recovered: Recovered, ask_tables: AskTables) -> None:
        try:
            tables = ask_tables(identity.log_id, recovered.state.collections)
        except Transient as error:
            raise self._needs("tables", error) from None
        for name, found in tables.items():
            if is_of_another_history(found, identity.term, recovered.segments, recovered.state.last_lsn):
                raise OldCopy(f"data folder {self.path} is an old copy: the table of {name!r} is at {found}")

    def _needs(self, what: str, error: Transient) -> EndpointUnavailable:
        return EndpointUnavailable(
            f"data folder {self.path} was copied or moved, and only its {what} can tell whether it is an old "
            f"copy: start again when there is an answer ({error.message})"
        )

    def _put_aside(self) -> None:
        """Keeps segments out of the way that are of an old copy, or of which nothing says whose they are."""
        if segment_files(self.log):
            aside = Path(tempfile.mkdtemp(prefix="wal-put-aside-", dir=self.path))
            log.warning("moved the segments in %s to %s", self.log, aside)
            self.log.rename(aside / _LOG)
            self.log.mkdir()

    def _place(self) -> Place:
        try:
            machine = _MACHINE_ID.read_text().strip()
        except OSError:
            machine = ""
        lock = os.fstat(self._lock)
        return machine, lock.st_dev, lock.st_ino, lock.st_ctime_ns

    def _identity(self) -> Identity | None:
        try:
            raw = json.loads((self.path / _IDENTITY).read_text())
            place = raw.get("place")
            claiming = raw.get("claiming")
            return Identity(
                str(raw["log_id"]),
                int(raw["epoch"]),
                place and _place_of(place),
                None if claiming is None else int(claiming),
            )
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(
                f"{self.path / _IDENTITY} is damaged: move the data folder away, and what reached object "
                "storage is recovered from there"
            ) from None

    def _write(self, identity: Identity) -> None:
        reached("identity writing")
        raw = {"log_id": identity.log_id, "epoch": identity.term, "place": identity.place}
        if identity.claiming is not None:
            raw["claiming"] = identity.claiming
        replace_file(self.path / _IDENTITY, json.dumps(raw).encode())
        reached("identity written")


def _needed(mark: LowWater, last: int) -> set[int]:
    return set(range(mark.first_segment, last + 1)) - set(mark.given_up)


def _first_of_run(here: set[int], there: set[int]) -> int:
    """Returns the lowest number from which on there is no gap, here or there."""
    first = min(here or there, default=1)
    while first - 1 in there:
        first -= 1
    return first


def _place_of(raw: list[Any]) -> Place:
    machine, device, inode, changed_ns = raw
    return str(machine), int(device), int(inode), int(changed_ns)
