"""The side logs on the disk: for each collection in quarantine the writes that are not in its table.

    side/orders/00000000000000000042-00f3a9c04be1d277.wal

The low-water mark says which of them count, and which are released: those were being copied when a process
died, or belong to a quarantine that is over. Only they are removed. Nobody has proved of any other file that
it is not needed, so it is left alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from headrace.durable import draft_of, keep_draft, sync_path
from headrace.faults import reached
from headrace.ingest.low_water import LowWater, Quarantined
from headrace.ingest.store import SegmentStore
from headrace.objects import NoSuchObject
from headrace.wal.records import Writes
from headrace.wal.segments import CorruptLog, Segment
from headrace.wal.side_segments import SideSegment, read_side_segment

log = logging.getLogger(__name__)

_FOLDER = "side"

OnWrites = Callable[[str, Writes], None]


class SideLog:
    """Thread-safe."""

    def __init__(self, data: Path, store: SegmentStore, term: int) -> None:
        self._folder, self._store, self._term = data / _FOLDER, store, term
        self._read: dict[tuple[str, SideSegment], Segment] = {}
        self._ignored: set[str] = set()  # what was logged as such
        self._lock = Lock()

    def segments(
        self, collection: str, quarantined: Quarantined, on_writes: OnWrites = lambda _, __: None
    ) -> list[Segment]:
        """Returns them in order; each is checked when it is first asked for, and taken from the store if it
        is not here as it was written. `on_writes` hears of those that are."""
        with self._lock:
            return [self._segment(collection, side, on_writes) for side in quarantined.segments]

    def add(self, collection: str, side: SideSegment, data: bytes) -> None:
        """Returns when a segment is on the disk and in the store."""
        path = self._path(collection, side)
        self._make_folder(path.parent)
        try:
            reached("side log writing")
            draft_of(path).write_bytes(data)
            keep_draft(path)
            reached("side log written")
        except OSError:
            draft_of(path).unlink(missing_ok=True)  # on a full disk its room is needed
            raise
        segment = read_side_segment(path, side, collection, lambda _, __: None)
        self._store.put_side(collection, segment, self._term)
        reached("side log put")
        with self._lock:
            self._read[collection, side] = segment

    def reconcile(self, mark: LowWater) -> None:
        """Puts what the mark names and the store lacks, as a new store does, and removes what the mark has
        released, from the disk and from the store."""
        there = self._store.sides()
        # After the look: what a server that takes over puts there is not among those.
        self._store.check_owner(self._term)
        kept = {(name, side.name) for name, one in mark.quarantined.items() for side in one.segments}
        for name, one in mark.quarantined.items():
            for side, segment in zip(one.segments, self.segments(name, one), strict=True):
                if (name, side.name) not in there:
                    self._store.put_side(name, segment, self._term)
        with self._lock:
            self._read = {key: segment for key, segment in self._read.items() if _name_of(key) in kept}
        released = set(mark.released_sides) - kept
        drafts = {(name, draft_of(Path(file)).name) for name, file in released}
        for path in self._folder.glob("*/*"):
            file = (path.parent.name, path.name)
            if file in released | drafts:
                path.unlink()
                reached("side log removed")
            elif file not in kept:
                self._ignore(str(path))
        for file in there:
            if file in released:
                self._store.remove_side(*file)
            elif file not in kept:
                self._ignore(f"{self._store.url}: {'/'.join(file)}")

    def _ignore(self, what: str) -> None:
        if what not in self._ignored:
            self._ignored.add(what)
            log.warning("%s is of no side log that the low-water mark names: it is ignored", what)

    def _segment(self, collection: str, side: SideSegment, on_writes: OnWrites) -> Segment:
        known = self._read.get((collection, side))
        if known is None:
            known = self._read[collection, side] = self._find(collection, side, on_writes)
        return known

    def _find(self, collection: str, side: SideSegment, on_writes: OnWrites) -> Segment:
        path = self._path(collection, side)
        try:
            return read_side_segment(path, side, collection, on_writes)
        except (FileNotFoundError, CorruptLog) as error:
            log.warning("taking %s from %s: %s", path.name, self._store.url, error)
        self._make_folder(path.parent)
        try:
            self._store.fetch_side(collection, side.name, path.parent)
        except NoSuchObject:
            raise CorruptLog(
                f"{path}, with writes {side.first_lsn} to {side.last_lsn} of collection {collection!r}, is "
                f"neither there as it was written nor in {self._store.url}: restore "
                f"it from a copy, or restart the server with --accept-loss {loss_of(collection, side)} to go "
                "on without them"
            ) from None
        return read_side_segment(path, side, collection, on_writes)

    def _path(self, collection: str, side: SideSegment) -> Path:
        return self._folder / collection / side.name

    def _make_folder(self, folder: Path) -> None:
        if not folder.exists():
            folder.mkdir(parents=True)
            sync_path(self._folder)
            sync_path(self._folder.parent)


def loss_of(collection: str, side: SideSegment) -> str:
    """Returns what a person says who gives a segment up."""
    return f"{collection}:{side.first_lsn}-{side.last_lsn}"


def _name_of(key: tuple[str, SideSegment]) -> tuple[str, str]:
    collection, side = key
    return collection, side.name
