"""The one thread that writes the log: it syncs once for all that waited, and begins new segments.

A sync that fails says nothing about what is on the disk, and a second one on the same file may lie. So the
segment is given up at the last offset that was synced before, and what waits is written to a new one.
"""

from __future__ import annotations

import errno
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Event, Thread

from headrace.errors import ServerUnavailable, StorageFull, Terminal
from headrace.model.lsn import RESERVED_AT_ONCE, last_lsn_of
from headrace.wal.files import Files
from headrace.wal.groups import Declaration, Entry, Said, SegmentEncoder, Waiting
from headrace.wal.records import Kind, Mark, SegmentHeader, frame, frame_mark
from headrace.wal.segments import Segment, segment_name
from headrace.wal.state import CollectionState, LogState

log = logging.getLogger(__name__)

# A state that is large (many producers) is written down only when the log has grown by this many times its
# size since the last one; a small one at the start of every segment.
_STATE_SHARE = 4
_LOADED = 4  # messages of a group that mean that more are coming
_FULL = (errno.ENOSPC, errno.EDQUOT)
_FIRST_RETRY_SECONDS = 0.05
_LAST_RETRY_SECONDS = 1.0
_IDLE_SECONDS = 1.0
LONGEST_SILENCE_SECONDS = 30.0
"""Between two beats there is one group to write and sync, or a segment to begin, with the log's state."""


@dataclass(frozen=True)
class LogLimits:
    segment_bytes: int = 64 << 20
    """A segment is sealed when it has this size,"""
    segment_seconds: float = 0.1
    """or when its first write has waited for this long and the segments before it are uploaded."""
    group_bytes: int = 8 << 20
    """At most this much is written before a sync."""
    gather_seconds: float = 0.002
    """Under load a group gathers for this long, so that syncs leave time for acknowledgements. There is load
    if the group before had several messages: whoever writes one and waits for it does not pay for others."""
    waiting_bytes: int = 256 << 20
    """Writers wait while this much waits for the disk."""


class LogWriter:
    """Gives every write its LSN and makes it durable.

    `on_durable(lsn)`, `on_sealed(segment)`, `on_failing(reason or None)` and `beat()` are called on the log's
    own thread, the first only after the sync that makes it true has returned.
    """

    def __init__(
        self,
        folder: Path,
        term: int,
        number: int,
        state: LogState,
        previous: Segment | None,
        *,
        on_durable: Callable[[int], None],
        on_sealed: Callable[[Segment], None],
        on_failing: Callable[[str | None], None] = lambda _: None,
        may_seal: Callable[[], bool] = lambda: True,
        beat: Callable[[], None] = lambda: None,
        limits: LogLimits | None = None,
        files: Files | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._folder, self._term, self._number, self._state = folder, term, number, state
        self._on_durable, self._on_sealed, self._on_failing = on_durable, on_sealed, on_failing
        self._may_seal, self._beat, self._limits = may_seal, beat, limits or LogLimits()
        self._files, self._clock = files or Files(), clock
        self._began_at, self._uptime_before_us = clock(), state.uptime_us
        self._changed = Condition()  # guards what the callers' threads share with the log's
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._next_lsn = state.reserved_until
        self._last_lsn = state.last_lsn
        self._reserved_until = state.reserved_until
        self._least_reserved = RESERVED_AT_ONCE // 2
        self._unsynced_since_us: int | None = None
        self._asleep = False
        self._seal_wanted = self._closing = self._is_written_out = False
        self._failure: str | None = None
        self.has_failed = False
        """For good, not only for as long as the disk does."""
        # From here on only the log's thread writes.
        self._descriptor: int | None = None
        self._header: SegmentHeader | None = None
        self._encoder = SegmentEncoder()
        self._previous_length = previous.length if previous else 0
        self._unannounced: Segment | None = None  # sealed, but no later segment says so yet
        self._durable = 0
        self._open = (folder / segment_name(number), 0)
        self._last_lsns: dict[str, int] = {}
        self._first_accepted_us: int | None = None
        self._has_state = False
        self._since_state: int | None = None  # bytes of log since the last state; None: write one now
        self._first_write_at: float | None = None
        self._is_loaded = False
        self._thread = Thread(target=self._run, name="wal", daemon=True)

    def start(self) -> None:
        """Begins a segment, so that a disk that cannot be written is known at once.

        On one that is full it starts all the same, and refuses writes until there is room: what is uploaded
        and committed meanwhile makes some.
        """
        try:
            self._begin_segment()
        except OSError as error:
            if error.errno not in _FULL:
                raise Terminal(self._refusal(error)) from error
            self._fail(error)
        self._beat()
        self._thread.start()

    # What other threads call.

    def append(self, entry: Entry) -> int:
        """Accepts a message; its writes get consecutive LSNs, of which this is the first."""
        with self._changed:
            self._refuse()
            while self._next_lsn + entry.count > self._reserved_until:
                self._want_more_numbers(entry.count)
            lsn = entry.lsn = self._next_lsn
            self._next_lsn = lsn + entry.count
            self._last_lsn = self._next_lsn - 1
            self._waiting.append(entry)
            self._waiting_bytes += entry.message.size
            if self._unsynced_since_us is None:
                self._unsynced_since_us = entry.accepted_us
            if self._asleep:
                self._changed.notify_all()
        return lsn

    def declare(self, collection: CollectionState, timeout: float = 30.0) -> None:
        """Returns when the collection is in the log, synced. It is encoded here: whatever is wrong with it
        must not come up on the log's thread, which has nobody to tell it to."""
        declaration = Declaration(collection, collection.encode(), Event())
        with self._changed:
            self._refuse()
            self._waiting.append(declaration)
            self._changed.notify_all()
        if not declaration.done.wait(timeout):
            raise StorageFull(f"the disk did not take the collection {collection.name!r} in {timeout:.0f} s")

    @property
    def room(self) -> int:
        """How many more bytes may wait for the disk; below 0 if too many do."""
        return self._limits.waiting_bytes - self._waiting_bytes

    def wait_for_room(self, timeout: float) -> bool:
        """Whether there is any."""
        with self._changed:
            return self._changed.wait_for(lambda: self.room >= 0, timeout)

    def seal(self) -> None:
        """Ends the current segment as soon as what waits is written, if there are writes in it."""
        with self._changed:
            self._seal_wanted = True
            self._changed.notify_all()

    @property
    def waiting_bytes(self) -> int:
        return self._waiting_bytes

    @property
    def unsynced_since_us(self) -> int | None:
        """When the oldest message was accepted that is not yet synced."""
        return self._unsynced_since_us

    @property
    def unsealed_since_us(self) -> int | None:
        """When the oldest message was accepted that is in no sealed segment."""
        return self._first_accepted_us or self._unsynced_since_us

    @property
    def open_segment(self) -> tuple[Path, int]:
        """The segment that is being written, and how much of it is synced."""
        return self._open

    @property
    def last_lsn(self) -> int:
        """The last LSN that a write has; later ones may have been given away by an earlier process."""
        return self._last_lsn

    @property
    def uptime_us(self) -> int:
        """For how long servers of this log have run, this one included."""
        return self._uptime_before_us + int((self._clock() - self._began_at) * 1_000_000)

    @property
    def failure(self) -> str | None:
        return self._failure

    def close(self, timeout: float) -> bool:
        """Writes what waits, and says whether all of it is synced."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is None:  # never started
            return not self._waiting
        self._thread.join(timeout)
        return self._is_written_out

    def _refuse(self) -> None:
        if self._failure is not None:
            raise StorageFull(self._failure)
        if self._closing:
            raise ServerUnavailable("the server is shutting down")

    def _want_more_numbers(self, count: int) -> None:
        if self._next_lsn + count > last_lsn_of(self._term):
            raise Terminal("the numbers of this term are used up: restart the server to begin another")
        self._least_reserved = max(self._least_reserved, count)
        self._changed.notify_all()
        self._changed.wait(1.0)
        self._refuse()

    # What the log's own thread does.

    def _run(self) -> None:
        try:
            self._write_all()
        except Exception as error:
            # Nothing will be synced any more, so nothing may be accepted either.
            self.has_failed = True
            self._failure = f"the log has failed ({type(error).__name__}: {error}): restart the server"
            log.exception("the log has failed")
            self._on_failing(self._failure)

    def _write_all(self) -> None:
        if self._descriptor is None and not self._retry(self._begin_segment):
            return
        while True:
            group = self._next_group()
            if group is None:
                break
            if not self._persist(group):
                return
            self._release(group)
            if self._should_seal() and not self._retry(self._begin_segment):
                return
        self._is_written_out = True
        if self._descriptor is not None:
            self._files.close(self._descriptor)

    def _next_group(self) -> list[Waiting] | None:
        """What to write next; nothing if it is only time to seal or to set numbers aside; None at the end."""
        with self._changed:
            self._beat()
            while not self._waiting and not self._needs_numbers():
                if self._closing:
                    return None
                pause = self._seconds_until_seal()
                if self._seal_wanted or (pause is not None and pause <= 0):
                    break
                self._asleep = True
                self._changed.wait(_IDLE_SECONDS if pause is None else min(pause, _IDLE_SECONDS))
                self._asleep = False
                self._beat()
            if self._is_loaded and not self._closing and self._waiting_bytes < self._limits.group_bytes:
                self._changed.wait_for(lambda: self._closing, self._limits.gather_seconds)
            group: list[Waiting] = []
            size = messages = 0
            while self._waiting and size < self._limits.group_bytes:
                waiting = self._waiting.popleft()
                group.append(waiting)
                if isinstance(waiting, Entry):
                    size += waiting.message.size
                    messages += waiting.messages
            self._is_loaded = messages >= _LOADED
            return group

    def _release(self, group: list[Waiting]) -> None:
        with self._changed:
            self._waiting_bytes -= sum(entry.message.size for entry in group if isinstance(entry, Entry))
            oldest = next((waiting for waiting in self._waiting if isinstance(waiting, Entry)), None)
            self._unsynced_since_us = oldest.accepted_us if oldest else None
            self._changed.notify_all()
        for waiting in group:
            if isinstance(waiting, Declaration):
                waiting.done.set()

    def _persist(self, group: list[Waiting]) -> bool:
        if not group and not self._needs_numbers():
            return True
        return self._retry(lambda: self._write_group(group))

    def _write_group(self, group: list[Waiting]) -> None:
        if self._descriptor is None:
            self._begin_segment()
        assert self._descriptor is not None
        reserved_until = self._reservation()
        parts, said = self._encoder.encode(group)
        assert self._header is not None
        mark = Mark(self._durable, reserved_until, self._header.nonce)
        data = b"".join([frame_mark(mark), *parts])
        self._files.write(self._descriptor, data)
        self._files.sync(self._descriptor)
        self._durable += len(data)
        self._open = (self._open[0], self._durable)
        if self._since_state is not None:
            self._since_state += len(data)
        self._note(said, reserved_until)

    def _note(self, said: list[Said], reserved_until: int) -> None:
        before = self._state.last_lsn
        self._state.uptime_us = self.uptime_us
        for what in said:
            if isinstance(what, CollectionState):
                self._state.declared(what)
            else:
                collection, writes = what
                self._state.wrote(collection, writes)
                self._last_lsns[collection] = writes.last_lsn
                self._first_accepted_us = self._first_accepted_us or writes.accepted_us
        self._state.reserved_until = reserved_until
        with self._changed:
            self._reserved_until = reserved_until
        if said and self._first_write_at is None:
            self._first_write_at = time.monotonic()
        if self._state.last_lsn > before:
            self._on_durable(self._state.last_lsn)

    def _needs_numbers(self) -> bool:
        is_low = self._reserved_until - self._next_lsn < self._least_reserved
        return is_low and self._reserved_until < last_lsn_of(self._term)

    def _reservation(self) -> int:
        if not self._needs_numbers():
            return self._reserved_until
        return min(self._next_lsn + max(RESERVED_AT_ONCE, 2 * self._least_reserved), last_lsn_of(self._term))

    def _seconds_until_seal(self) -> float | None:
        """None while there is nothing to seal, or nobody to take it."""
        if self._first_write_at is None:
            return None
        left = self._first_write_at + self._limits.segment_seconds - time.monotonic()
        if left > 0:
            return left
        return 0.0 if self._may_seal() else self._limits.segment_seconds

    def _should_seal(self) -> bool:
        if self._first_write_at is None:
            with self._changed:
                self._seal_wanted = self._seal_wanted and bool(self._waiting)
            return False
        due = self._seconds_until_seal()
        return (
            self._seal_wanted or self._durable >= self._limits.segment_bytes or (due is not None and due <= 0)
        )

    def _begin_segment(self) -> None:
        """Ends the current segment; it is handed on once the header of the next one says where it ends."""
        self._give_up_segment()
        self._state.uptime_us = self.uptime_us
        header = SegmentHeader(
            self._term,
            self._number,
            self._state.last_lsn + 1,
            self._state.reserved_until,
            self._previous_length,
            secrets.randbits(64),
        )
        data = header.encode()
        has_state = self._since_state is None or self._since_state >= _STATE_SHARE * self._state.about_bytes
        state = self._state.without_silent() if has_state else self._state
        if has_state:
            data += frame(Kind.STATE, state.encode())
        path = self._folder / segment_name(self._number)
        descriptor = self._files.create(path)
        try:
            self._files.write(descriptor, data)
            self._files.sync(descriptor)
            self._files.sync_folder(self._folder)
        except OSError:
            self._files.close(descriptor)
            raise
        self._state.forget_as(state)
        self._descriptor, self._header, self._has_state = descriptor, header, has_state
        self._durable, self._first_write_at, self._encoder = len(data), None, SegmentEncoder()
        self._last_lsns, self._first_accepted_us = {}, None
        self._since_state = 0 if has_state else (self._since_state or 0)
        with self._changed:
            self._seal_wanted = False
        if self._unannounced is not None:
            sealed, self._unannounced = self._unannounced, None
            self._on_sealed(sealed)
        # Last: until then whoever reads the log finds the segment before it, here or among the sealed.
        self._open = (path, len(data))

    def _give_up_segment(self) -> None:
        if self._descriptor is None or self._header is None:
            return
        descriptor, self._descriptor = self._descriptor, None
        path = self._folder / segment_name(self._number)
        self._unannounced = Segment(
            path,
            self._header,
            self._durable,
            self._state.last_lsn,
            self._last_lsns,
            self._first_accepted_us,
            self._has_state,
        )
        self._previous_length = self._durable
        self._number += 1
        self._files.close(descriptor)

    def _retry(self, action: Callable[[], None]) -> bool:
        """Until it succeeds; False if the log is closed before that."""
        pause = _FIRST_RETRY_SECONDS
        while True:
            self._beat()
            try:
                action()
            except OSError as error:
                self._fail(error)
                self._give_up_quietly()
                with self._changed:
                    self._changed.wait_for(lambda: self._closing, pause)
                    if self._closing:
                        return False
                pause = min(pause * 2, _LAST_RETRY_SECONDS)
            else:
                self._heal()
                return True

    def _give_up_quietly(self) -> None:
        try:
            if self._descriptor is not None:
                # What was not synced is written again elsewhere, and on a full disk its room is needed.
                with suppress(OSError):
                    self._files.truncate(self._descriptor, self._durable)
            self._give_up_segment()
        except OSError as error:
            log.warning("closing a segment that failed: %s", error)

    def _fail(self, error: OSError) -> None:
        reason = self._refusal(error)
        if self._failure != reason:
            log.error("%s", reason)
        with self._changed:
            self._failure = reason
            self._changed.notify_all()
        self._on_failing(reason)

    def _refusal(self, error: OSError) -> str:
        return f"the disk of {self._folder} refuses writes ({error.strerror or error}): free space or mend it"

    def _heal(self) -> None:
        if self._failure is not None:
            log.warning("the disk of %s takes writes again", self._folder)
            with self._changed:
                self._failure = None
            self._on_failing(None)
