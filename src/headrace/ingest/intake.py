"""Gives the writes of all sessions their LSNs, on one thread.

A session's own thread only reads and checks, since every call into Arrow costs it a turn at the interpreter's
lock. What has gathered meanwhile is put together here: a message of the log for each session, however many
messages it came in.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Event, Lock, Thread
from typing import NamedTuple

import pyarrow as pa

from headrace.errors import ConfigError, HeadraceError, StorageFull, Terminal, UnexpectedFailure
from headrace.ingest.announcer import Announcer
from headrace.ingest.heartbeats import IDLE_SECONDS
from headrace.ingest.producers import Producer
from headrace.ingest.progress import now_us
from headrace.ingest.statistics import Statistics
from headrace.wal.groups import Entry, WriteStream
from headrace.wal.writer import LogWriter

log = logging.getLogger(__name__)

# No more often than this, so that writes gather under load: an acknowledgement for each starves everything
# else. Whoever writes one and waits for it to be synced pays nothing for that.
_GATHER_SECONDS = 0.001
_MOST_JOINED_BYTES = 1 << 20  # larger messages gain nothing by being copied into one
_RETRY_SECONDS = 0.05
LONGEST_SILENCE_SECONDS = 30.0
"""Between two beats it checks and copies what has gathered, or waits for the log to set numbers aside."""


class Message(NamedTuple):
    """What came in one message, checked."""

    batch: pa.RecordBatch
    rows: Sequence[int] | None
    """Of each write; None: the message is one write."""
    seq: int
    """Of the first write; 0 without a producer."""
    size: int
    arrived: float

    @property
    def writes(self) -> int:
        return 1 if self.rows is None else len(self.rows)


class Source:
    """One session, as the intake sees it."""

    def __init__(
        self, stream: WriteStream, producer: Producer | None, announcer: Announcer, statistics: Statistics
    ) -> None:
        self.stream, self.producer, self.announcer = stream, producer, announcer
        self.statistics = statistics
        self.refusal: HeadraceError | None = None
        """Set by anybody: nothing more of this source is written, so that there is no gap in what is."""
        self.unsynced: deque[tuple[int, int]] = deque()
        """The last LSN and the size of what was put into the log, in order; the session takes them out."""
        self.last_lsn = 0


class Intake:
    """`on_fatal` is told of an error after which nothing can be accepted."""

    def __init__(
        self,
        log_writer: LogWriter,
        on_fatal: Callable[[Terminal], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._log, self._on_fatal, self._beat = log_writer, on_fatal, beat
        self._queue: deque[tuple[Source, Message] | Event] = deque()
        self._queued_bytes = 0
        self._lock = Lock()  # guards the sum
        self._news = Event()
        self._closing = False
        self._thread = Thread(target=self._run, name="intake", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Takes what is there, and ends."""
        self._closing = True
        self._news.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def put(self, source: Source, message: Message) -> None:
        """Returns at once; the source's announcer hears of the LSNs."""
        with self._lock:
            self._queued_bytes += message.size
        self._queue.append((source, message))
        if not self._news.is_set():
            self._news.set()

    @property
    def queued_bytes(self) -> int:
        return self._queued_bytes

    @property
    def is_full(self) -> bool:
        """Whether as much waits for the disk as may, here and in the log."""
        return self._queued_bytes > self._log.room

    def mark(self) -> Event:
        """Is set when everything that was put before has its LSNs."""
        mark = Event()
        self._queue.append(mark)
        self._news.set()
        return mark

    def _run(self) -> None:
        try:
            taken = 0.0
            while not self._closing or self._queue:
                while not self._news.wait(IDLE_SECONDS):
                    self._beat()
                early = taken + _GATHER_SECONDS - time.perf_counter()
                if early > 0 and not self._closing:
                    time.sleep(early)
                self._news.clear()
                taken = time.perf_counter()
                self._take_all()
        except Exception as error:
            log.exception("the intake has failed")
            reason = error.message if isinstance(error, HeadraceError) else repr(error)
            self._on_fatal(Terminal(f"nothing can be accepted any more ({reason}): restart the server"))

    def _take_all(self) -> None:
        """Gives LSNs to what is there now."""
        self._beat()
        gathered: dict[Source, list[Message]] = {}
        for _ in range(len(self._queue)):
            item = self._queue.popleft()
            if isinstance(item, Event):
                self._write_all(gathered)
                gathered = {}
                item.set()
            else:
                source, message = item
                gathered.setdefault(source, []).append(message)
        self._write_all(gathered)

    def _write_all(self, gathered: dict[Source, list[Message]]) -> None:
        for source, messages in gathered.items():
            try:
                for joinable in _joinable(messages):
                    if source.producer is None:
                        self._write(source, joinable)
                    else:
                        self._write_once(source, source.producer, joinable)
            except ConfigError as error:
                source.refusal = error
            except Exception as error:
                # Of this source's data, since the log's own errors are not raised; others must not suffer.
                log.exception("writes to %s failed", source.stream.collection)
                source.refusal = UnexpectedFailure(f"a write failed: {type(error).__name__}: {error}")
            with self._lock:
                self._queued_bytes -= sum(message.size for message in messages)

    def _write_once(self, source: Source, producer: Producer, messages: list[Message]) -> None:
        """Leaves out what this producer has written before."""
        with producer.lock:
            fresh = [new for message in messages if (new := self._unknown_part(source, producer, message))]
        # Not under the lock: a full disk is waited for, and who removes old segments may want the lock.
        lsn = self._write(source, fresh) if fresh else None
        if lsn is not None:
            with producer.lock:
                writes = sum(message.writes for message in fresh)
                producer.wrote(fresh[0].seq, lsn, writes, self._log.uptime_us)

    def _unknown_part(self, source: Source, producer: Producer, message: Message) -> Message | None:
        known = min(max(producer.last_seq - message.seq + 1, 0), message.writes)
        if not known:
            return message
        if (missing := producer.left_out(message.seq, known)) is not None:
            # To take it for one that was written would lose it, and to write it now would change the order.
            raise ConfigError(
                f"sequence number {missing} of producer {source.stream.producer!r} was left out, and "
                f"{producer.last_seq} is written already: numbers only go up; write it with a new number"
            )
        source.announcer.wrote_before(producer.find(message.seq, known))
        source.statistics.duplicates += known
        if known == message.writes:
            source.unsynced.append((0, message.size))
            return None
        assert message.rows is not None
        return message._replace(
            batch=message.batch.slice(sum(message.rows[:known])),
            rows=message.rows[known:],
            seq=message.seq + known,
        )

    def _write(self, source: Source, messages: list[Message]) -> int | None:
        first = messages[0]
        if len(messages) == 1:
            batch, rows = first.batch, first.rows
        else:
            batch = pa.concat_batches([message.batch for message in messages])
            rows = [n for message in messages for n in message.rows or (message.batch.num_rows,)]
        count = 1 if rows is None else len(rows)
        entry = Entry(source.stream, batch.serialize(), count, rows, first.seq, now_us(), len(messages))
        lsn = self._append(source, entry)
        if lsn is None:
            return None
        statistics = source.statistics  # first of all: who hears of a write may go away, and take it along
        statistics.writes += count
        statistics.rows += batch.num_rows
        statistics.bytes += entry.message.size
        source.announcer.wrote(lsn, count, first.seq)
        source.last_lsn = lsn + count - 1
        source.unsynced.append((source.last_lsn, sum(message.size for message in messages)))
        statistics.write_seconds.append(time.perf_counter() - first.arrived)
        return lsn

    def _append(self, source: Source, entry: Entry) -> int | None:
        """Waits for a disk that is full, since a client that sends nothing more cannot be told of an error.

        None if the source is refused meanwhile, as it is when it sends more, or when the server stops.
        """
        while source.refusal is None:
            self._beat()
            try:
                return self._log.append(entry)
            except StorageFull as error:
                if self._closing:
                    source.refusal = error
                else:
                    time.sleep(_RETRY_SECONDS)
            except HeadraceError as error:
                source.refusal = error
        return None


def _joinable(messages: Iterable[Message]) -> Iterator[list[Message]]:
    """Neighbours that can become one message of the log: small ones, whose numbers follow each other."""
    joined: list[Message] = []
    size = next_seq = 0
    for message in messages:
        if joined and (message.seq != next_seq or size + message.size > _MOST_JOINED_BYTES):
            yield joined
            joined, size = [], 0
        joined.append(message)
        size += message.size
        next_seq = message.seq + message.writes if message.seq else 0
    if joined:
        yield joined
