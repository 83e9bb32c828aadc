"""The public writer."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Literal

import pyarrow as pa

from headrace.client.buffer import Buffer
from headrace.client.connection import Connection
from headrace.client.convert import to_batch
from headrace.client.ledger import Ledger
from headrace.client.receipts import Receipt
from headrace.client.sender import Reconnect, Sender
from headrace.errors import Closed, ConfigError, HeadraceError
from headrace.model.tiers import Tier

# Up to here a batch's own buffers tell its size, at a fortieth of what it costs to find out exactly.
SMALL_BYTES = 4096
# A slice of a large batch looks as large as that. Of these one in so many is measured, and the others taken
# to have rows like it; but where it is found to be large in truth, each one is.
MEASURED_OF = 16
LARGE_WRITE_BYTES = 65536

# How long an interrupted program waits for what it has written.
EXIT_SECONDS = 5.0
# How long threads may take to end after they were asked to.
STOP_SECONDS = 10.0

_RecordBatch = pa.RecordBatch


class Writer:
    """Writes to one collection, and reports how far each write has come. Safe to use from many threads.

    Created by `Client.writer`. As a context manager it flushes and closes at the end of the block.
    """

    def __init__(
        self,
        connection: Connection,
        collection: str,
        producer: str,
        *,
        linger: float,
        max_batch_writes: int,
        max_batch_bytes: int,
        max_buffer: int,
        on_full: Literal["block", "raise"],
        retain: str | Tier,
        reconnect: Reconnect,
        on_forgotten: Literal["raise", "resend"],
    ) -> None:
        if on_full not in ("block", "raise"):
            raise ConfigError(f"on_full is {on_full!r}: block or raise")
        if on_forgotten not in ("raise", "resend"):
            raise ConfigError(f"on_forgotten is {on_forgotten!r}: raise or resend")
        if min(max_batch_writes, max_batch_bytes, max_buffer) < 1 or linger < 0:
            raise ConfigError(
                "max_batch_writes, max_batch_bytes and max_buffer are at least 1, linger at least 0"
            )
        self.collection = collection
        self.producer = producer
        self._blocks = on_full == "block"
        self._ledger = Ledger(Tier.parse(retain))
        self._lock = self._ledger.lock
        self._buffer = Buffer(self._ledger, max_batch_writes, max_batch_bytes, max_buffer)
        self._max_writes = self._buffer.max_writes
        self._max_bytes = self._buffer.max_bytes
        self._sender = Sender(
            connection,
            collection,
            producer,
            self._buffer,
            linger,
            reconnect,
            resends=on_forgotten == "resend",
        )
        self._started = False
        self._starting = threading.Lock()
        self._closed = False
        self._document_schema: pa.Schema | None = None
        self._unmeasured = 0
        self._bytes_a_row = 0.0

    def write(self, data: object) -> Receipt:
        """Takes `data` as one write, which gets one LSN, and returns at once; waits only for buffer space.

        `data` is a RecordBatch or Table, a pandas or polars DataFrame, a dict or a list of dicts. Its memory
        is read later, so its arrays must not be modified in place.
        """
        batch: pa.RecordBatch = data if type(data) is _RecordBatch else self.convert(data)
        size = batch.get_total_buffer_size()
        if size > SMALL_BYTES:
            size = self._measure(batch)
        buffer = self._buffer
        # The fast path of every write. The few that begin a message take Buffer.append.
        with self._lock:
            group = buffer.open
            batches = group.batches
            count = len(batches)
            total = group.size + size
            if (
                0 < count < self._max_writes
                and total <= self._max_bytes
                and batch.num_rows
                and batch.schema.equals(group.schema)
            ):
                batches.append(batch)
                group.size = total
                return Receipt(group, count)
        return self._begin(batch, size, block=self._blocks)

    def write_durable(
        self, data: object, level: str | Tier = Tier.LOCAL_DISK, timeout: float | None = None
    ) -> Receipt:
        """Writes, and returns when the write has reached the level."""
        tier = Tier.parse(level)
        receipt = self.write(data)
        self.send_now()
        return receipt.wait(tier, timeout)

    def send_now(self) -> None:
        """Has everything written so far sent without lingering."""
        with self._lock:
            self._buffer.hurry_locked()

    def flush(self, level: str | Tier = Tier.LOCAL_DISK, timeout: float | None = None) -> None:
        """Returns when every earlier write has reached the level.

        Raises the first error of a write that no receipt has raised yet.
        """
        self._buffer.flush(Tier.parse(level), timeout)

    def close(self, timeout: float | None = None) -> None:
        """Flushes to LOCAL_DISK, waits for registered callbacks, and ends the stream. May be called
        repeatedly.

        Accepts no more writes from the start. Raises like `flush`, and is closed nevertheless.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self._buffer.open.batches:
                self._buffer.seal_locked()
            self._buffer.refusal = self._buffer.refusal or Closed("the writer is closed")
            failed_before = self._ledger.failure is not None
        deadline = None if timeout is None else time.monotonic() + timeout
        is_clean = False
        try:
            if failed_before:
                self._raise_unseen()
                return
            self.flush(Tier.LOCAL_DISK, timeout)
            with self._lock:
                self._ledger.wait_locked(
                    lambda: not self._ledger.has_waiters_locked() or self._ledger.failure or False,
                    deadline,
                    "not all callbacks were called",
                )
            is_clean = True
        finally:
            self._sender.stop(STOP_SECONDS, cleanly=is_clean)
            self._buffer.fail(Closed("the writer was closed before it heard more of the write"))

    @property
    def watermarks(self) -> dict[Tier, int]:
        """The LSN for each tier up to which everything has reached it, as far as this writer knows; 0 if
        nothing has."""
        return dict(zip(Tier, self._ledger.watermarks, strict=True))

    def wait_watermark(self, level: str | Tier, lsn: int, timeout: float | None = None) -> int:
        """Returns the tier's watermark when it is at or above the LSN."""
        tier, ledger = Tier.parse(level), self._ledger
        ledger.wait(
            lambda: ledger.watermarks[tier] >= lsn or ledger.failure or False,
            timeout,
            f"the watermark of {tier.name} did not reach {lsn}",
        )
        return ledger.watermarks[tier]

    def on_watermark(self, callback: Callable[[Tier, int], object]) -> None:
        """Registers `callback(tier, lsn)`, which is called as a watermark rises, on the thread for
        acknowledgements."""
        self._ledger.on_watermark.append(callback)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def throttled(self) -> str | None:
        """The reason why the server holds back at the moment, if it does."""
        return self._ledger.throttled

    @property
    def trouble(self) -> HeadraceError | None:
        """The reason why there is no connection at the moment, if there should be one."""
        return self._ledger.trouble

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            # The first failure matters more than its consequences.
            with contextlib.suppress(HeadraceError):
                self.close(EXIT_SECONDS)

    def check_stalled(self) -> None:
        """Checks the stream. Called by the client's watchdog."""
        self._sender.check_stalled()

    def try_write(self, batch: pa.RecordBatch) -> Receipt:
        """Writes like `write`, but raises `BufferFull` instead of waiting."""
        size = int(batch.get_total_buffer_size())
        return self._begin(batch, size if size <= SMALL_BYTES else self._measure(batch), block=False)

    def call_on_room(self, callback: Callable[[], None]) -> None:
        """Registers `callback`, which is called once, when there is more space than now or never will be."""
        with self._lock:
            if self._buffer.refusal is None:
                self._buffer.on_room.append(callback)
                return
        callback()

    def _begin(self, batch: pa.RecordBatch, size: int, *, block: bool) -> Receipt:
        if not batch.num_rows:
            raise ConfigError("there is nothing to write: the data has no rows")
        if not self._started:
            with self._starting:
                if not self._started and not self._closed:
                    self._sender.start()
                    self._started = True
        return self._buffer.append(batch, size, block=block)

    def convert(self, data: object) -> pa.RecordBatch:
        batch = to_batch(data, self._document_schema)
        if isinstance(data, dict | list):
            self._document_schema = batch.schema
        return batch

    def _measure(self, batch: pa.RecordBatch) -> int:
        if self._unmeasured > 0:
            self._unmeasured -= 1
            return int(self._bytes_a_row * batch.num_rows) + 1
        size = int(batch.nbytes)
        self._bytes_a_row = size / max(batch.num_rows, 1)
        self._unmeasured = 0 if size > LARGE_WRITE_BYTES else MEASURED_OF - 1
        return size

    def _raise_unseen(self) -> None:
        with self._lock:
            ledger = self._ledger
            error = ledger.unseen_failure_locked() or (None if ledger.failure_seen else ledger.failure)
            ledger.failure_seen = True
        if error is not None:
            raise error.with_traceback(None)
