"""Collections that cannot be committed, kept apart so that the log and the others go on.

The low-water mark says which they are, and why. Their writes are copied out of the log into a side log, so
that the log can be released; a collection leaves quarantine when a person releases or drops it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass, replace
from threading import Event, Lock
from typing import Any

from headrace.errors import ConfigError, Fenced, HeadraceError
from headrace.faults import reached
from headrace.ingest.low_water import LowWater, LowWaterMark, Quarantined, TableMark
from headrace.ingest.progress import now_us
from headrace.ingest.quarantine.side_log import OnWrites, SideLog, loss_of
from headrace.ingest.resends import Known, Resends
from headrace.wal.position import LogPosition
from headrace.wal.segments import Segment
from headrace.wal.side_segments import copy_writes

log = logging.getLogger(__name__)

# Of one collection, copied and released at a time: on a disk that is almost full there is room for no more.
MOST_BYTES = 64 << 20


class Release:
    """What a person has asked for, and what became of it."""

    def __init__(self, collection: str) -> None:
        self.collection = collection
        self.done = Event()
        self.error: HeadraceError | None = None

    def end(self, error: HeadraceError | None = None) -> None:
        self.error = error
        self.done.set()


@dataclass(frozen=True)
class Listed:
    """A collection in quarantine, for who runs the server."""

    collection: str
    reason: str
    since_us: int
    side_log_bytes: int
    releasing: bool

    @property
    def problem(self) -> str:
        return f"collection {self.collection!r} is in quarantine: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Quarantine:
    """Thread-safe. `term` is that of the server."""

    def __init__(self, mark: LowWaterMark, side_log: SideLog, term: int) -> None:
        self._mark, self._side_log, self._term = mark, side_log, term
        self._moving = Lock()  # while writes are copied, a release or a drop waits
        self._releases: dict[str, Release] = {}
        self._dropping: set[str] = set()
        self._is_reconciled = False  # a process before this one may not have come to it
        self.on_change: Callable[[], None] = lambda: None
        """Is called when a collection has gone into quarantine, or has come out."""

    # What everybody asks.

    def names(self) -> list[str]:
        return sorted(self._mark.current.quarantined)

    def __contains__(self, collection: str) -> bool:
        return collection in self._mark.current.quarantined

    def holds(self, collection: str) -> bool:
        """Returns whether nothing of a collection is to be committed now."""
        return collection in self._mark.current.quarantined or collection in self._dropping

    def listed(self) -> list[Listed]:
        return [
            Listed(name, one.reason, one.since_us, one.bytes, name in self._releases)
            for name, one in sorted(self._mark.current.quarantined.items())
        ]

    @property
    def problem(self) -> str | None:
        """Returns why not everything is committed, if it is for this."""
        return next((one.problem for one in self.listed()), None)

    def reason(self, collection: str) -> str | None:
        """Returns why a collection takes no writes."""
        found = self._mark.current.quarantined.get(collection)
        return found.reason if found else None

    @property
    def bytes(self) -> int:
        """How large the side logs are."""
        return sum(one.bytes for one in self._mark.current.quarantined.values())

    def settled_lsn(self, collection: str) -> int:
        """Returns up to where the log is not needed for a collection: writes are in its side log, or a person
        has given them up."""
        mark = self._mark.current
        found = mark.quarantined.get(collection)
        return max(mark.dropped.get(collection, 0), found.through if found else 0)

    def dropped_lsn(self, collection: str) -> int:
        """Returns up to where the writes of a collection were given up, and are not to be committed."""
        return self._mark.current.dropped.get(collection, 0)

    def segments(self, collection: str, on_writes: OnWrites = lambda _, __: None) -> list[Segment]:
        """Returns the collection's side log, in order; nothing if it is not in quarantine."""
        found = self._mark.current.quarantined.get(collection)
        return self._side_log.segments(collection, found, on_writes) if found else []

    # What the server does.

    def load(self, accept_loss: Collection[str], on_writes: OnWrites = lambda _, __: None) -> None:
        """Checks all side logs, before anybody asks for them; a segment that a person gives up is lost."""
        for name, one in self._mark.current.quarantined.items():
            for side in one.segments:
                if loss_of(name, side) in accept_loss:
                    self._give_up(name, side.name)
            self.segments(name, on_writes)

    def enter(self, collection: str, reason: str) -> None:
        """Returns when the collection is in quarantine for good, whatever becomes of this process."""
        reached("quarantine entering")
        entry = Quarantined(reason, now_us())
        self._mark.move(lambda mark: replace(mark, quarantined={**mark.quarantined, collection: entry}))
        self.on_change()
        reached("quarantine entered")
        log.error("collection %r is in quarantine: %s", collection, reason)

    def set_aside(self, uploaded: Iterable[Segment], committed: Callable[[str], int]) -> bool:
        """Copies a part of what keeps segments of the log from being released; returns whether there may be
        more. A collection that cannot be copied holds up no other; the first error is raised in the end."""
        segments, copied = list(uploaded), False
        failure: Exception | None = None
        for name in self.names():
            try:
                with self._moving:
                    copied |= name not in self._releases and self._copy(name, segments, committed(name))
            except Fenced:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, others have their own files
                failure = failure or error
        if failure is not None and not copied:
            raise failure
        return copied

    def _copy(self, name: str, uploaded: list[Segment], committed: int) -> bool:
        after = max(committed, self.settled_lsn(name))
        sources = [segment for segment in uploaded if segment.last_lsns.get(name, 0) > after]
        copy = copy_writes(sources, name, after, MOST_BYTES, self._term) if sources else None
        if copy is None or name not in self:
            return False
        side, data = copy
        file = (name, side.name)
        # Or nobody could say that a file is not needed which a process leaves behind that dies on the way.
        self._mark.move(lambda mark: replace(mark, released_sides=(*mark.released_sides, file)))
        self._side_log.add(name, side, data)

        def with_copy(mark: LowWater) -> LowWater:
            one = mark.quarantined[name]
            kept = replace(one, segments=(*one.segments, side))
            return replace(_without_files(mark, {file}), quarantined={**mark.quarantined, name: kept})

        self._mark.move(with_copy)
        reached("side log recorded")
        return True

    def tidy(self) -> None:
        """Brings disk and store to what the mark says, after a start and while the mark releases files."""
        if self._has_leftovers and self._mark.is_compared:
            with self._moving:
                self._mark.settle()
                mark = self._mark.current
                self._side_log.reconcile(mark)
                if mark.released_sides:
                    self._mark.move(lambda now: _without_files(now, set(mark.released_sides)))
                self._is_reconciled = True

    @property
    def _has_leftovers(self) -> bool:
        return not self._is_reconciled or bool(self._mark.current.released_sides)

    # What a person does.

    def ask_release(self, collection: str) -> Release:
        """Whoever commits does it, see `releases` and `end`."""
        self._require(collection)
        with self._moving:
            return self._releases.setdefault(collection, Release(collection))

    def releases(self) -> list[Release]:
        """Returns those that were asked for and are not done."""
        return list(self._releases.values())

    def end(self, release: Release, position: LogPosition | None, error: HeadraceError | None = None) -> None:
        """Ends the quarantine if all is in the table, which is at `position` then; else it stays."""
        name = release.collection
        try:
            if position is not None and name in self:
                reached("quarantine lifting")
                self._mark.move(lambda mark: _without(mark, name, position))
                self.on_change()
                reached("quarantine lifted")
                log.warning("collection %r is out of quarantine: all of its writes are committed", name)
        except HeadraceError as failed:
            error = failed
        with self._moving:
            self._releases.pop(name, None)
        release.end(error)

    def drop(
        self,
        collection: str,
        first: int,
        last: int,
        known: Iterable[Known],
        break_off: Callable[[], None],
    ) -> None:
        """Ends the quarantine and gives its writes up: from now on they are lost, and nothing else is.
        `known` are their producers.

        `break_off()` ends the streams of the collection, which could take later writes for those that are
        lost; until it has returned for the second time, nothing is committed.
        """
        with self._moving:
            self._require(collection)
            if collection in self._releases:
                raise ConfigError(f"collection {collection!r} is being released: drop it when that has ended")

            def without(mark: LowWater) -> LowWater:
                ended = replace(_without(mark, collection), dropped={**mark.dropped, collection: last})
                if first > last:
                    return ended
                lost = (*mark.lost.get(collection, ()), (first, last))
                resends = mark.resends.get(collection, Resends()).with_known(known)
                return replace(
                    ended,
                    lost={**mark.lost, collection: lost},
                    resends={**mark.resends, collection: resends},
                )

            reached("quarantine dropping")
            self._dropping.add(collection)
            try:
                break_off()
                self._mark.move(without)
                self.on_change()
                reached("quarantine dropped")
                break_off()  # of those that began in between
            finally:
                self._dropping.discard(collection)
        log.warning("LSNs %d to %d of collection %r were given up", first, last, collection)

    def _require(self, collection: str) -> None:
        if collection not in self:
            raise ConfigError(
                f"collection {collection!r} is not in quarantine: headrace quarantine list says which are"
            )

    def _give_up(self, name: str, side_name: str) -> None:
        def without(mark: LowWater) -> LowWater:
            one = mark.quarantined[name]
            gone = next(side for side in one.segments if side.name == side_name)
            kept = replace(one, segments=tuple(side for side in one.segments if side is not gone))
            return replace(
                mark.losing(name, gone.first_lsn, gone.last_lsn),
                quarantined={**mark.quarantined, name: kept},
            )

        self._mark.move(without)


def _without(mark: LowWater, name: str, position: LogPosition | None = None) -> LowWater:
    quarantined = {other: one for other, one in mark.quarantined.items() if other != name}
    before = mark.tables.get(name, TableMark())
    table = replace(before, position=position) if position is not None else before
    files = ((name, side.name) for side in mark.quarantined[name].segments)
    return replace(
        mark,
        quarantined=quarantined,
        tables={**mark.tables, name: table},
        released_sides=(*mark.released_sides, *files),
    )


def _without_files(mark: LowWater, files: Collection[tuple[str, str]]) -> LowWater:
    return replace(mark, released_sides=tuple(one for one in mark.released_sides if one not in files))
