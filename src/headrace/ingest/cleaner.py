"""Removes segments that are committed, on its own thread: a store that does not delete holds up nobody."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import Event, Thread

from headrace.errors import HeadraceError
from headrace.faults import reached
from headrace.ingest.heartbeats import IDLE_SECONDS
from headrace.ingest.segment_index import SegmentIndex
from headrace.ingest.store import SegmentStore
from headrace.wal.segments import Segment

log = logging.getLogger(__name__)

LONGEST_SILENCE_SECONDS = 300.0
"""Between two beats the store lists its objects or removes one, and may try that more than once."""


class Cleaner:
    """`committed(collection)` is how far a table is. `failing` says why something stays, if it does."""

    def __init__(
        self,
        index: SegmentIndex,
        store: SegmentStore,
        committed: Callable[[str], int],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._index, self._store, self._committed, self._beat = index, store, committed, beat
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
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again after the next commit
                self._failed(error)

    def _remove_committed(self) -> None:
        """The file first, since a file without its object would be put again."""
        self._removable.extend(self._index.remove(self._committed))
        while self._removable and not self._closing:
            self._beat()
            reached("wal removing")
            self._removable[0].path.unlink(missing_ok=True)
            reached("wal removed")
            self._unremoved.add(self._removable.popleft().header.number)
        if not self._knows_leftovers:
            first = self._index.all()[0].header.number if self._index.all() else 0
            self._unremoved.update(number for number in self._store.numbers() if number < first)
            self._knows_leftovers = True
        for number in sorted(self._unremoved):
            if self._closing:
                return
            self._beat()
            self._store.remove(number)
            reached("segment removed")
            self._unremoved.discard(number)

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
