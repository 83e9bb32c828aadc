"""Removes segments that are committed, on its own thread: a store that does not delete holds up nobody.

The low-water mark is moved first: it says that they are not needed, and nothing else does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Event, Thread

from headrace.errors import Fenced, HeadraceError
from headrace.faults import reached
from headrace.ingest.commit_loop import Confirmed
from headrace.ingest.heartbeats import IDLE_SECONDS
from headrace.ingest.low_water import LowWater, LowWaterMark, TableMark
from headrace.ingest.quarantine.lifecycle import Quarantine
from headrace.ingest.segment_index import SegmentIndex
from headrace.ingest.store import SegmentStore
from headrace.wal.segments import Segment
from headrace.wal.state import Committed

log = logging.getLogger(__name__)

LONGEST_SILENCE_SECONDS = 300.0
"""Between two beats the store lists its objects or removes one, and may try that more than once."""


class Cleaner:
    """`confirmed()` is how far the tables are. `failing` says why something stays, if it does.

    `on_fatal(error)` is called when another server turns out to own the log; then nothing more is removed.
    """

    def __init__(
        self,
        index: SegmentIndex,
        store: SegmentStore,
        mark: LowWaterMark,
        confirmed: Callable[[], Confirmed],
        quarantine: Quarantine,
        on_fatal: Callable[[Fenced], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._index, self._store, self._mark, self._confirmed = index, store, mark, confirmed
        self._quarantine = quarantine
        self._on_fatal, self._beat = on_fatal, beat
        self._removable: deque[Segment] = deque()  # in order: a file that is left behind is no gap
        self._unremoved: set[int] = set()  # segments whose files are removed and whose objects are not
        self._knows_leftovers = False  # a process before this one may have removed files only
        self.failing: str | None = None
        self._wanted = Event()
        self._closing = False
        self._thread = Thread(target=self._run, name="cleaner", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    @property
    def backlog(self) -> int:
        """How many segments are committed, and still there as a file or an object."""
        return len(self._removable) + len(self._unremoved)

    @property
    def kept_bytes(self) -> int:
        """How large the files are that are to be removed and are still there."""
        return sum(segment.length for segment in list(self._removable))

    def clean(self) -> None:
        """Returns at once; what can be removed now is, soon."""
        self._wanted.set()

    def close(self, timeout: float) -> None:
        """A store that does not answer is not waited for: the next process removes what is left."""
        self._closing = True
        self._wanted.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            while not self._wanted.wait(IDLE_SECONDS):
                self._beat()
            self._beat()
            self._wanted.clear()
            if self._closing:
                return
            try:
                self._remove_committed()
                self.failing = None
            except Fenced as error:
                self._failed(error)
                self._on_fatal(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again after the next commit
                self._failed(error)

    def _remove_committed(self) -> None:
        """Takes each step whatever becomes of the others, and raises the first error in the end.

        What makes room comes before the copies, which need some: else a full disk would stay full.
        """
        steps: tuple[Callable[[], bool | None], ...] = (
            self._release,
            self._remove_files,
            self._mark.tidy,
            self._quarantine.tidy,
            self._set_aside,
            self._remove_objects,
        )
        is_more = True
        while is_more and not self._closing:
            is_more, failure = False, None
            for step in steps:
                self._beat()
                try:
                    is_more |= bool(step())
                except Fenced:
                    raise
                except Exception as error:  # noqa: BLE001 - the first one is raised below
                    failure = failure or error
            if failure is not None and not is_more:
                raise failure

    def _set_aside(self) -> bool:
        """Copies writes of collections in quarantine out of the log; returns whether there may be more."""
        tables = self._confirmed().tables
        uploaded = filter(self._index.is_uploaded, self._index.all())
        return self._quarantine.set_aside(uploaded, lambda name: tables[name].lsn if name in tables else 0)

    def _remove_files(self) -> None:
        """Before their objects, since a file without its object would be put again."""
        while self._removable and not self._closing:
            self._beat()
            reached("wal removing")
            self._removable[0].path.unlink(missing_ok=True)
            reached("wal removed")
            self._unremoved.add(self._removable.popleft().header.number)

    def _remove_objects(self) -> None:
        if not self._knows_leftovers:
            first = self._mark.current.first_segment
            self._unremoved.update(number for number in self._store.numbers() if number < first)
            self._knows_leftovers = True
        for number in sorted(self._unremoved):
            if self._closing:
                return
            self._beat()
            self._store.remove(number)
            reached("segment removed")
            self._unremoved.discard(number)

    def _release(self) -> None:
        """Moves the mark over segments at the front that nobody needs any more, and takes them out."""
        confirmed = self._confirmed()
        tables = confirmed.tables

        def committed(collection: str) -> int:
            settled = self._quarantine.settled_lsn(collection)
            return max(tables[collection].lsn if collection in tables else 0, settled)

        # What was uploaded since the tables were asked may make more removable: not by that answer.
        released = [
            segment
            for segment in self._index.removable(committed)
            if segment.header.number <= confirmed.through
        ]
        if released or (tables and not self._mark.current.knows_tables):
            rest = self._index.all()[len(released) :]
            # Not `tables`: one of them may have been released from quarantine meanwhile, and be further.
            self._mark.move(lambda mark: _moved(mark, released, rest[0], self._confirmed().tables))
            self._index.remove(len(released))
            self._removable.extend(released)

    def _failed(self, error: Exception) -> None:
        if isinstance(error, HeadraceError):
            said = error.message
        elif isinstance(error, OSError) and self._removable:
            said = f"cannot remove {self._removable[0].path}: {error.strerror or error}"
        else:
            said = f"cannot remove old segments: {type(error).__name__}: {error}"
        if self.failing != said:
            log.warning("%s", said)
        self.failing = said


def _moved(
    mark: LowWater, released: Sequence[Segment], first: Segment, tables: Mapping[str, Committed]
) -> LowWater:
    marks = dict(mark.tables)
    # Also of collections whose tables do not answer: what was copied out of the log is to be in them one day.
    for name in tables.keys() | {name for segment in released for name in segment.last_lsns}:
        before = marks.get(name, TableMark())
        through = max((segment.last_lsns.get(name, 0) for segment in released), default=0)
        position = tables[name].position if name in tables else before.position
        marks[name] = TableMark(position, max(before.released, through))
    moved = replace(mark, tables=marks)
    if first.header.number < mark.first_segment:  # the store's mark, read late, was further than the disk
        return moved
    return replace(
        moved,
        first_segment=first.header.number,
        first_lsn=first.header.first_lsn,
        given_up=tuple(number for number in mark.given_up if number >= first.header.number),
    )
