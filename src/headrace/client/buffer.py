"""Holds a writer's data: the writes to be sent, those that were sent, and those that may have to be
resent."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from headrace.client.groups import Group
from headrace.client.ledger import Ledger
from headrace.client.receipts import Receipt
from headrace.errors import BufferFull, HeadraceError
from headrace.model.tiers import Tier

log = logging.getLogger("headrace.client")


class Buffer:
    """A write is in the open group, then in `outbox`, `sent` and `held`, and is then forgotten.

    `sent` waits for LSNs, `held` for the level from which on the server is trusted with the data.
    Groups pass in order; a new session may move them back.
    """

    def __init__(self, ledger: Ledger, max_writes: int, max_bytes: int, max_buffer: int) -> None:
        self.ledger = ledger
        self.max_writes = max_writes
        self.max_bytes = min(max_bytes, max_buffer)
        self.max_buffer = max_buffer
        self.work = threading.Condition(ledger.lock)
        """Notified when there is something to send."""
        self.room = threading.Condition(ledger.lock)
        self.open = Group(ledger, first=1)
        self.outbox: deque[Group] = deque()
        self.sent: deque[Group] = deque()
        self.held: deque[Group] = deque()
        self.refusal: HeadraceError | None = None
        """The reason why no more writes are accepted."""
        self.on_room: list[Callable[[], None]] = []
        self.base: int | None = None
        """The producer's last sequence number before this writer; our numbers are relative to it."""
        self.sent_since = 0.0
        self.hurry = False
        """Whether somebody waits for the open group."""
        self._buffered = 0
        self.sent_through = 0
        self.tells_first_seq = False
        """Whether the server knows the option first_seq."""

    # Writing

    def append(self, batch: pa.RecordBatch, size: int, *, block: bool) -> Receipt:
        """Appends slowly: may begin a group, wait for space, or be refused."""
        with self.ledger.lock:
            while True:
                if self.refusal is not None:
                    self.ledger.failure_seen = True
                    raise self.refusal.with_traceback(None)
                group = self.open
                if group.batches and not self._fits(group, batch, size):
                    self.seal_locked()
                    group = self.open
                if group.batches or not self._buffered or self._buffered + size <= self.max_buffer:
                    break
                self._wait_for_room(block)
            if not group.batches:
                group.schema = batch.schema
                group.since = time.monotonic()
                self.work.notify()
            group.batches.append(batch)
            group.size += size
            return Receipt(group, len(group.batches) - 1)

    def _fits(self, group: Group, batch: pa.RecordBatch, size: int) -> bool:
        return (
            len(group.batches) < self.max_writes
            and group.size + size <= self.max_bytes
            and group.schema.equals(batch.schema)
        )

    def _wait_for_room(self, block: bool) -> None:
        if not block or self.ledger.is_telling:
            raise BufferFull(
                f"the writer's buffer of {self.max_buffer} bytes is full of writes that have not reached "
                f"{self.ledger.retain.name}"
            )
        self.room.wait()

    def seal_locked(self) -> None:
        """Ends the open group, and begins the next one."""
        group = self.open
        group.count = len(group.batches)
        self.hurry = False
        self._buffered += group.size
        self.outbox.append(group)
        self.open = Group(self.ledger, group.first + group.count)
        self.work.notify()

    def hurry_locked(self) -> None:
        """Has the open group sent now instead of after lingering."""
        if self.open.batches:
            self.hurry = True
            self.work.notify()

    # Sending

    def next_locked(self) -> Group | None:
        """Returns the group to send now."""
        if not self.outbox and self.open.batches:
            self.seal_locked()
        return self.outbox[0] if self.outbox else None

    def combine(self, group: Group) -> None:
        """Combines a group into a message. Only the sender's thread does this."""
        if group.message is None:
            group.combine()
            # The writes' own sizes were guesses; that of a batch which was put together is known.
            size = group.message_size
            with self.ledger.lock:
                self._buffered += size - group.size
                group.size = size

    def mark_sent_locked(self, group: Group) -> None:
        assert self.outbox[0] is group
        if not self.sent:
            self.sent_since = time.monotonic()
        self.sent.append(self.outbox.popleft())
        self.sent_through = max(self.sent_through, group.last)

    def recall_locked(self) -> None:
        """Ends a stream: writes without an LSN must be resent, unless the server reports that it has them."""
        self.outbox.extendleft(reversed(self.sent))
        self.sent.clear()

    @property
    def first_to_send(self) -> int:
        """Returns the sequence number of the first write that waits to be sent, for the first time or
        again."""
        waiting = self.sent or self.outbox
        return waiting[0].first if waiting else self.open.first

    @property
    def is_settled(self) -> bool:
        """Whether the server has every write, at the level from which on it is trusted with the data."""
        return not (self.open.batches or self.outbox or self.sent or self.held)

    def settled_through(self, seq: int) -> bool:
        """Returns whether every write up to this one has reached the level at which its data is released, or
        failed."""
        if self.open.batches and self.open.first <= seq:
            return False
        return all(not groups or groups[0].first > seq for groups in (self.held, self.sent, self.outbox))

    @property
    def last_seq(self) -> int:
        return self.open.first + len(self.open.batches) - 1

    def free_locked(self, size: int) -> None:
        self._buffered -= size
        self.room.notify_all()
        callbacks, self.on_room[:] = list(self.on_room), []
        for callback in callbacks:
            callback()

    # Giving up

    def refuse_first(self, error: HeadraceError, schema: pa.Schema | None = None) -> bool:
        """Fails the group that a server refused, which is the first that it did not accept.

        A group that was never sent can be refused by its schema alone. Returns False if there is none to
        refuse.
        """
        with self.ledger.lock:
            group = self.outbox[0] if self.outbox else None
            if group is None:
                return False
            if group.first > self.sent_through and (schema is None or not group.schema.equals(schema)):
                return False
            self.outbox.popleft()
            self._fail(group, error)
            ready = self.ledger.ready_locked(after_failure=True)
        log.warning("a write was refused: %s", error)
        self.ledger.tell(ready)
        return True

    def fail(self, error: HeadraceError) -> None:
        """Fails every write that is not accepted, and accepts no more."""
        ledger = self.ledger
        with ledger.lock:
            if ledger.failure is not None:
                return
            if self.open.batches:
                self.seal_locked()
            ledger.failure, self.refusal = error, self.refusal or error
            for group in (*self.sent, *self.outbox):
                self._fail(group, error)
            for groups in (self.sent, self.outbox, self.held):
                groups.clear()
            self.free_locked(self._buffered)
            ready = ledger.ready_locked(after_failure=True)
        ledger.tell(ready)

    def _fail(self, group: Group, error: HeadraceError) -> None:
        group.error = error
        self.ledger.note_failure_locked(group)
        self.free_locked(group.size)
        group.let_go()

    def flush(self, tier: Tier, timeout: float | None) -> None:
        """Returns when everything written so far has reached the tier; raises the failure of any of these
        writes."""
        ledger = self.ledger
        deadline = None if timeout is None else time.monotonic() + timeout
        what = f"not all writes reached {tier.name}"
        with ledger.lock:
            seq = self.last_seq
            self.hurry_locked()
            # Writes that the server is not yet trusted with may be resent, with other LSNs.
            level = min(tier, ledger.retain)
            ledger.wait_locked(lambda: ledger.failure or self._reached(seq, level), deadline, what)
            lsn = ledger.last_lsn
            if tier > ledger.retain:
                ledger.wait_locked(
                    lambda: ledger.watermarks[tier] >= min(lsn, ledger.last_lsn) or ledger.failure or False,
                    deadline,
                    what,
                )
            error = ledger.unseen_failure_locked()
        if error is not None:
            raise error.with_traceback(None)

    def _reached(self, seq: int, tier: Tier) -> bool:
        if self.settled_through(seq):
            return True
        waiting = (self.sent, self.outbox, [self.open] if self.open.batches else [])
        if tier == self.ledger.retain or any(groups and groups[0].first <= seq for groups in waiting):
            return False
        lsns = [group.last_lsn for group in self.held if group.first <= seq]
        return tier is Tier.MEMORY or self.ledger.watermarks[tier] >= max(lsns, default=0)
