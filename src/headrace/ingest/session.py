"""One stream of writes: reads messages, checks them, and hands them to the intake.

The call's own thread reads. An `Announcer` writes, so that a client that does not read its acknowledgements
holds up nobody but itself. It ends before the call does: gRPC's stream is gone after that.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.errors import ConfigError, Fenced, HeadraceError, SchemaError, StorageFull, UnknownProducer
from headrace.ingest.acks import ACK_SCHEMA
from headrace.ingest.announcer import Announcer
from headrace.ingest.collections import Admission, Collections
from headrace.ingest.intake import Intake, Message, Source
from headrace.ingest.message_checks import bad_view, expanded_bytes
from headrace.ingest.options import (
    NO_NUMBERING,
    Options,
    has_options,
    numbering_of,
    options_of,
    parse_metadata,
)
from headrace.ingest.producers import Producer, Producers
from headrace.ingest.progress import Progress
from headrace.ingest.statistics import Statistics
from headrace.model.tiers import Tier
from headrace.wal.writer import LogWriter

# How long a refused stream's earlier writes are waited for, so that they are acknowledged before the error.
_SETTLE_SECONDS = 2.0
_THROTTLE_POLL_SECONDS = 0.05
_JOIN_POLL_SECONDS = 0.1
_ACCESS_SECONDS = 1.0
_MOST_UNSYNCED = 1024  # parts of the log that are remembered before it is looked which of them are synced
_MESSAGE_BYTES = 1024  # that a message takes besides its data


@dataclass(frozen=True)
class SessionLimits:
    message_bytes: int = 64 << 20
    """A message that is larger is refused."""
    unsynced_bytes: int = 64 << 20
    """The stream is not read while this much of it waits for the disk, with 1 KiB added to each message."""
    ranges: int = 1 << 20
    """The stream is not read while this many ranges of LSNs, of 16 bytes each, wait to be announced."""


@dataclass(frozen=True)
class Services:
    """What a session needs of its server."""

    log: LogWriter
    intake: Intake
    progress: Progress
    producers: Producers
    collections: Collections
    limits: SessionLimits
    refusal: Callable[[], HeadraceError | None]
    """Why nothing is accepted now, if so."""
    is_backed_up: Callable[[], str | None]
    """Why everybody has to wait now, if so."""
    describe_session: Callable[[str, Options, Producer | None], dict[str, Any]]


class Session:
    """`check_access` raises once the client may no longer write."""

    def __init__(
        self,
        services: Services,
        collection: str,
        context: Any,
        reader: Any,
        writer: Any,
        check_access: Callable[[], None],
    ) -> None:
        self.collection = collection
        self.peer: str = context.peer()
        self.statistics = Statistics()
        self.throttled: str | None = None
        self._services, self._context, self._reader, self._writer = services, context, reader, writer
        self._options = Options()
        self._admission: Admission | None = None
        self._producer: Producer | None = None
        self._is_unknown = False  # the producer, until it has begun
        self._announcer: Announcer | None = None
        self._check_access, self._checked_at = check_access, time.perf_counter()
        self._source: Source | None = None
        self._unsynced_bytes = 0

    @property
    def producer(self) -> str:
        return self._options.producer

    def pending(self, tier: Tier) -> int:
        return self._announcer.pending(tier) if self._announcer else 0

    def run(self) -> None:
        """Returns when the client is done and has been told everything; raises what ends the stream."""
        self._writer.begin(ACK_SCHEMA)
        try:
            self._read_all()
            self._finish()
        except HeadraceError as error:
            self.statistics.refused += 1
            self._settle(error)
            raise
        except (flight.FlightCancelledError, flight.FlightError, pa.ArrowException, OSError):
            self.statistics.disconnects += 1
            raise
        finally:
            self._release()

    def _read_all(self) -> None:
        while True:
            try:
                chunk = self._reader.read_chunk()
            except StopIteration:
                return
            except flight.FlightError:
                raise
            except (pa.ArrowException, OSError, MemoryError) as error:
                raise ConfigError(f"a message cannot be read as Arrow: {error}") from None
            began = time.perf_counter()
            if began - self._checked_at > _ACCESS_SECONDS:
                self._check_access()
                self._checked_at = began
            self._take(chunk.data, chunk.app_metadata, began)
            if self._must_wait():
                self._wait_for_room()

    def _take(self, batch: pa.RecordBatch | None, metadata: pa.Buffer | None, arrived: float) -> None:
        raw = parse_metadata(metadata) if metadata is not None else {}
        if self._announcer is None:
            self._open(raw)
        elif raw and has_options(raw):
            raise ConfigError("options come with the first message of a stream, not with a later one")
        if batch is None:
            return
        self._refuse()
        source = self._source or self._admit(batch.schema)
        numbering = (
            numbering_of(raw, batch.num_rows, bool(self._options.producer))
            if raw or self._options.producer
            else NO_NUMBERING
        )
        if self._is_unknown:
            self._refuse_a_past(numbering.seq)
            self._is_unknown = False
        batch, size = self._checked(batch)
        self._unsynced_bytes += size
        message = Message(batch, numbering.rows, numbering.seq, size, arrived)
        if self._producer is None:
            self._services.intake.put(source, message)
            return
        with self._producer.lock:
            if self._producer.holder is not self:
                raise Fenced(
                    f"another stream of producer {self._options.producer!r} took over collection "
                    f"{self.collection!r}: give every client a producer of its own"
                )
            # Now, not once it is in the log: or the producer could be forgotten between the two.
            self._producer.seen_us = self._services.log.uptime_us
            self._services.intake.put(source, message)

    def _admit(self, schema: pa.Schema) -> Source:
        assert self._announcer is not None
        try:
            admission = self._services.collections.admit(self.collection, schema, self._options.producer)
        except UnicodeDecodeError:
            raise SchemaError(f"collection {self.collection!r}: a column's name is not UTF-8") from None
        self._admission = admission
        self._source = Source(admission.stream, self._producer, self._announcer, self.statistics)
        return self._source

    def _open(self, raw: dict[str, Any]) -> None:
        services = self._services
        if has_options(raw):
            self._options = options_of(raw)
        announcer = Announcer(
            self.collection, self._options, self._writer, services.progress, self.statistics
        )
        if self._options.producer:
            self._producer = services.producers.take_over(self.collection, self._options.producer, self)
            # What the holder before was let write gets its LSNs first: the new one counts on from there.
            self._wait_for_intake()
            with self._producer.lock:
                self._is_unknown = not self._producer.last_seq
                self._greet(announcer)
        else:
            self._greet(announcer)
        announcer.start()
        self._announcer = announcer

    def _greet(self, announcer: Announcer) -> None:
        session = self._services.describe_session(self.collection, self._options, self._producer)
        announcer.say({"session": session})
        if self._producer is not None and self._options.resume_after is not None:
            announcer.resume(self._producer.after(self._options.resume_after))

    def _refuse_a_past(self, seq: int) -> None:
        """Raises if a producer that is not known has written before: to write on could double its rows."""
        producer = self._options.producer
        if seq > self._options.first_seq:
            raise UnknownProducer(
                f"the server does not know producer {producer!r} in collection {self.collection!r}, which "
                f"goes on at sequence number {seq}: one that is silent for seven days is forgotten, so what "
                "it sent before may be there or not; look for it, and send what is missing as another "
                "producer. A new one begins with 1, or says with the option first_seq where it does",
                producer=producer,
                collection=self.collection,
                first_seq=seq,
            )

    def _wait_for_intake(self) -> None:
        taken = self._services.intake.mark()
        while not taken.wait(_JOIN_POLL_SECONDS):
            self._raise_if_over()

    def _raise_if_over(self) -> None:
        if self._context.is_cancelled():
            raise flight.FlightCancelledError("the client went away")
        self._refuse()

    def _refuse(self) -> None:
        refusal = self._services.refusal() or (self._source.refusal if self._source else None)
        if refusal is not None:
            raise refusal

    def _checked(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
        """The batch as the log keeps it, and what it takes in memory."""
        admission = self._admission
        assert admission is not None
        size = batch.get_total_buffer_size()
        self._refuse_size("a message has", size)
        if not batch.num_rows:
            raise ConfigError("a write has no rows: leave it out")
        try:
            # Lengths and offsets come from the network; what they point at must be there before it is read.
            batch.validate(full=True)
        except (pa.ArrowInvalid, pa.ArrowIndexError) as error:
            raise SchemaError(f"collection {self.collection!r}: the batch is malformed: {error}") from None
        if admission.normalize is not None:
            if problem := bad_view(batch):
                raise SchemaError(f"collection {self.collection!r}: the batch is malformed: {problem}")
            # A dictionary, or a buffer that many views share, is small for what it stands for.
            self._refuse_size("with a copy of its value for each row a message has", expanded_bytes(batch))
            batch = admission.normalize(batch)
            size = max(size, batch.get_total_buffer_size())
            self._refuse_size("as it is kept a message has", size)
        if admission.check is not None:
            admission.check(batch)
        return batch, size + _MESSAGE_BYTES

    def _refuse_size(self, what: str, size: int) -> None:
        most = self._services.limits.message_bytes
        if size > most:
            raise ConfigError(f"{what} {size:,} bytes and may have {most:,}: split it")

    def _must_wait(self) -> bool:
        services, limits = self._services, self._services.limits
        source = self._source
        if source is not None and (
            self._unsynced_bytes > limits.unsynced_bytes or len(source.unsynced) > _MOST_UNSYNCED
        ):
            self._forget_synced(source)
        return (
            self._unsynced_bytes > limits.unsynced_bytes
            or services.intake.is_full
            or (self._announcer is not None and self._announcer.ranges > limits.ranges)
            or services.is_backed_up() is not None
        )

    def _wait_for_room(self) -> None:
        """The stream is not read meanwhile, so gRPC's flow control stops the client."""
        announcer = self._announcer
        assert announcer is not None
        self.throttled = self._services.is_backed_up() or "the disk is slower than the writers"
        if announcer.ranges > self._services.limits.ranges:
            self.throttled = "too many writes wait to be announced: read the acknowledgements"
        self.statistics.throttled += 1
        announcer.say({"throttled": self.throttled})
        while self._must_wait():
            if announcer.is_broken:
                raise flight.FlightCancelledError("the client went away")
            self._raise_if_over()
            self._services.log.wait_for_room(_THROTTLE_POLL_SECONDS)
            time.sleep(_THROTTLE_POLL_SECONDS / 10)
        self.throttled = None
        announcer.say({"throttled": None})

    def _forget_synced(self, source: Source) -> None:
        durable = self._services.progress.of(Tier.LOCAL_DISK, self.collection).lsn
        while source.unsynced and source.unsynced[0][0] <= durable:
            self._unsynced_bytes -= source.unsynced.popleft()[1]

    def _finish(self) -> None:
        """The client is done writing: it is told the rest."""
        if self._announcer is None:
            return
        self._wait_for_intake()
        if self._source is not None and self._source.refusal is not None:
            raise self._source.refusal  # not all that it brought was written
        self._announcer.finish()
        while not self._announcer.join(_JOIN_POLL_SECONDS):
            with suppress(StorageFull):  # that concerns who still writes
                self._raise_if_over()
        if self._announcer.is_broken:
            raise flight.FlightCancelledError("the acknowledgements could not be sent")

    def _settle(self, error: HeadraceError) -> None:
        """Before an error: what has an LSN is acknowledged, on the disk too if that is quick.

        What waits for a full disk to get one gets none: its client would write it again.
        """
        source = self._source
        if source is None:
            return
        if self._services.refusal() is not None:
            source.refusal = error
        if not self._services.intake.mark().wait(_SETTLE_SECONDS):
            return
        durable = self._services.progress.of(Tier.LOCAL_DISK, self.collection)
        self._services.progress.wait_for(lambda: durable.lsn >= source.last_lsn, _SETTLE_SECONDS)

    def _release(self) -> None:
        if self._source is not None:
            # So that what it has brought is counted with it; it is written in any case.
            self._services.intake.mark().wait(_JOIN_POLL_SECONDS)
        if self._announcer is not None:
            self._announcer.forget()
            self._announcer.stop()
            self._announcer.join()
        if self._producer is not None:
            with self._producer.lock:
                if self._producer.holder is self:
                    self._producer.holder = None
