"""Puts sealed segments into object storage, one after the other."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from threading import Condition, Thread

from headrace.errors import Fenced, Terminal, Transient
from headrace.faults import reached
from headrace.ingest import low_water
from headrace.ingest.heartbeats import IDLE_SECONDS
from headrace.ingest.store import SegmentStore
from headrace.wal.segments import Segment

log = logging.getLogger(__name__)

_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 5.0
LONGEST_SILENCE_SECONDS = 300.0
"""Between two beats a segment is put, or read and compared: a few requests. Each of them may take half a
minute, and has two more attempts."""


class Uploader:
    """One thread, one put at a time: while one is under way the next segment grows, so load makes larger
    objects, not more of them.

    `prove()`, if there is one, returns before anything is put: it raises if this log may not be. Then
    `on_uploaded(segment)` is called after each put has returned. An error that will not go away ends in
    `on_fatal(error)`, and nothing more is put.
    """

    def __init__(
        self,
        store: SegmentStore,
        term: int,
        *,
        prove: Callable[[], None] | None = None,
        on_uploaded: Callable[[Segment], None],
        on_fatal: Callable[[Terminal], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._store, self._term, self._prove, self._beat = store, term, prove, beat
        self._on_uploaded, self._on_fatal = on_uploaded, on_fatal
        self._waiting: deque[tuple[Segment, bool]] = deque()
        self._last: Segment | None = None  # that was put; it is not released before the next one is
        self._changed = Condition()
        self._closing = False
        self.failures = 0
        self.failing: str | None = None
        self._thread = Thread(target=self._run, name="uploader", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def add(self, segment: Segment, may_be_there: bool = False) -> None:
        """`may_be_there`: a process before this one may have put it, so look before it is sent again."""
        with self._changed:
            self._waiting.append((segment, may_be_there))
            self._changed.notify_all()

    @property
    def backlog(self) -> int:
        """How many segments wait."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        return not self._waiting

    def close(self, timeout: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._changed.wait_for(lambda: self._waiting or self._closing, IDLE_SECONDS):
                    self._beat()
                if self._closing:
                    return
                segment, may_be_there = self._waiting[0]
            try:
                if not self._put(segment, may_be_there):
                    return
            except Terminal as error:
                self.failing = error.message
                self._on_fatal(error)
                return
            except Exception as error:
                # Otherwise nothing would reach object storage any more, and nobody would notice.
                log.exception("the uploader has failed")
                self.failing = (
                    f"the uploader has failed ({type(error).__name__}: {error}): restart the server"
                )
                self._on_fatal(Terminal(self.failing))
                return
            with self._changed:
                self._waiting.popleft()
            self._last = segment
            reached("uploader put")
            self._on_uploaded(segment)

    def _put(self, segment: Segment, may_be_there: bool) -> bool:
        """Until it is there; False if the uploader is closed before that."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            self._beat()
            try:
                if self._prove is not None:
                    self._prove()
                    self._prove = None
                reached("uploader putting")
                if may_be_there and self._store.has(segment):
                    self._store.check_owner(self._term)
                else:
                    self._store.put(segment, self._term)
                self._check_last()
            except Transient as error:
                self.failures += 1
                if self.failing is None:
                    log.error("%s", error.message)
                self.failing = error.message
                with self._changed:
                    if self._changed.wait_for(lambda: self._closing, pause):
                        return False
                pause = min(pause * 2, _LAST_RETRY_SECONDS)
            else:
                if self.failing is not None:
                    log.warning("store %s takes segments again", self._store.url)
                self.failing = None
                return True

    def _check_last(self) -> None:
        """Raises if the previous segment was released although this process has not done that. Then the
        machine was rolled back after it did, and the name of the segment that was put is free again."""
        if self._last is None or self._store.is_there(number := self._last.header.number):
            return
        mark = low_water.read_newest(self._store)
        if mark is not None and mark.first_segment > number:
            raise Fenced(
                f"segment {number} was released, which this server does not know of: its machine was rolled "
                "back while it ran. Restart the server, and it goes on from object storage in a new term; "
                "what only this disk has is lost then, and put aside",
                fence=self._term,
            )
        log.warning(
            "segment %d was removed from %s by somebody else: it is put again", number, self._store.url
        )
        self._store.put(self._last, self._term)
