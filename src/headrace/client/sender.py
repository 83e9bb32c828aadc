"""The thread that sends what was written, over one stream after another."""

from __future__ import annotations

import logging
import random
import threading
import time
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.acknowledgements import Acknowledgements
from headrace.client.buffer import Buffer
from headrace.client.connection import Connection
from headrace.client.messages import encode_options
from headrace.client.stream import Stream
from headrace.errors import (
    Closed,
    ConfigError,
    HeadraceError,
    SchemaError,
    ServerUnavailable,
    Transient,
    UnexpectedFailure,
)
from headrace.model.tiers import Tier

log = logging.getLogger("headrace.client")

# A stream that lived for this long was a good one, even if nothing was written to it.
GOOD_STREAM_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Configures how a writer handles a server that is unavailable. All values are in seconds."""

    first_pause: float = 0.05
    longest_pause: float = 5.0
    give_up_after: float | None = 120.0
    """After failing for this long without any progress, the writer fails; None: never."""
    open_timeout: float = 10.0
    """How long a server may take to respond to the opening of a stream."""
    ack_timeout: float = 30.0
    """A server that was silent for this long, with writes in flight, is considered dead."""

    def pause(self, attempt: int) -> float:
        longest = min(self.longest_pause, self.first_pause * 2.0 ** min(attempt, 30))
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - so that clients do not return all at once


class Sender:
    """Gathers, sends, and reconnects. Only its own thread opens and uses streams."""

    def __init__(
        self,
        connection: Connection,
        collection: str,
        producer: str,
        buffer: Buffer,
        linger: float,
        reconnect: Reconnect,
        *,
        resends: bool,
    ) -> None:
        self._connection = connection
        self._collection = collection
        self._producer = producer
        self._buffer = buffer
        self._ledger = buffer.ledger
        self._acknowledgements = Acknowledgements(buffer, collection, producer, resends=resends)
        self._linger = linger
        self._reconnect = reconnect
        self._stream: Stream | None = None
        self._schema: pa.Schema = None
        """The schema of the last group that was sent, with which a stream is opened that only listens."""
        self._told_lsn = 0
        """The highest LSN when a server had reported everything and ended a stream."""
        self._stopping = self._stopping_cleanly = False
        self._attempt = 0
        self._failing_since: float | None = None
        self._lsn_at_failure = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace-sender", daemon=True)
        self._thread.start()

    def stop(self, timeout: float, *, cleanly: bool) -> None:
        """Ends the thread and its stream, without waiting for what is still to be sent."""
        with self._ledger.lock:
            self._stopping, self._stopping_cleanly = True, cleanly
            self._buffer.work.notify_all()
            self._ledger.changed.notify_all()
        stream = self._stream
        if stream is not None and (not cleanly or stream.session is None):
            stream.cancel(Closed("the writer was closed"))
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout)

    def check_stalled(self) -> None:
        """Breaks off a stream whose other end is silent although it owes a response."""
        stream, timeout = self._stream, self._reconnect.ack_timeout
        if stream is None or stream.session is None or stream.ended or self._ledger.throttled:
            return
        silent_since = max(stream.heard, self._buffer.sent_since)
        if self._buffer.sent and time.monotonic() - silent_since > timeout:
            stream.cancel(ServerUnavailable(f"the server has not answered for {timeout:g} s"))

    def _run(self) -> None:
        try:
            while self._wait_for_work():
                try:
                    self._step()
                except HeadraceError as error:
                    if not self._recover(error):
                        break
        except Exception as failure:
            log.exception("a writer's sender failed")
            self._buffer.fail(UnexpectedFailure(f"the writer failed: {failure!r}"))
        finally:
            self._drop_stream(cleanly=self._stopping_cleanly)

    def _wait_for_work(self) -> bool:
        """Returns when there is something to do, or False when there never will be."""
        buffer = self._buffer
        with self._ledger.lock:
            while not self._stopping:
                if buffer.outbox:
                    return True
                if buffer.open.batches:
                    left = buffer.open.since + self._linger - time.monotonic()
                    if left <= 0 or buffer.hurry:
                        return True
                    buffer.work.wait(left)
                    continue
                if self._stream.ended if self._stream is not None else self._has_news_to_hear():
                    return True
                buffer.work.wait()
        return False

    def _has_news_to_hear(self) -> bool:
        """Returns whether a stream is useful although there is nothing to send."""
        if self._schema is None or self._buffer.base is None:
            return False
        known = max(self._ledger.watermarks[Tier.COMMITTED], self._told_lsn)
        return bool(self._buffer.sent or self._buffer.held or self._ledger.last_lsn > known)

    def _step(self) -> None:
        """Takes the next step: notices an end, opens a stream, replaces it for another schema, or sends."""
        stream = self._stream
        if stream is not None and stream.ended:
            if stream.error is not None:
                raise stream.error
            if self._buffer.sent or self._buffer.held:
                raise ServerUnavailable("the server ended the stream")
            self._told_lsn = self._ledger.last_lsn
            self._drop_stream()
            return
        with self._ledger.lock:
            group = self._buffer.next_locked()
        if group is not None:
            try:
                self._buffer.combine(group)
            except pa.ArrowException as failure:
                error = ConfigError(f"the writes cannot be put into one batch: {failure}")
                self._buffer.refuse_first(error, group.schema)
                self._drop_stream()  # the next one gets another first number
                return
        if stream is None:
            self._open(self._schema if group is None else group.schema)
        elif group is None:
            return
        elif not group.schema.equals(stream.schema):
            self._end_for_another_schema(stream)
        else:
            with self._ledger.lock:
                self._buffer.mark_sent_locked(group)
            stream.send(group)

    def _open(self, schema: pa.Schema) -> None:
        resume_after = first_seq = None
        if self._buffer.base is not None:
            if self._buffer.tells_first_seq:
                # Nothing below it is in doubt: it was acknowledged, or refused.
                with self._ledger.lock:
                    first_seq = self._buffer.base + self._buffer.first_to_send
            # The watermark is not ours alone, and may have passed a write whose LSN we do not know.
            resume_after = min(self._ledger.watermarks[Tier.COMMITTED], self._ledger.last_lsn)
        stream = self._stream = Stream(self._buffer, self._acknowledgements, schema)
        options = encode_options(self._producer, resume_after, first_seq)
        stream.open(self._connection, self._collection, options, self._reconnect.open_timeout)
        self._schema = schema

    def _end_for_another_schema(self, stream: Stream) -> None:
        """Ends the stream, because a stream has one schema. The next one continues where this one has been
        acknowledged."""
        with self._ledger.lock:
            self._ledger.changed.wait_for(lambda: not self._buffer.sent or stream.ended or self._stopping)
        if not stream.ended:
            self._drop_stream()

    def _drop_stream(self, *, cleanly: bool = False) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            has_told_all = self._ledger.last_lsn <= self._ledger.watermarks[Tier.COMMITTED]
            stream.close(wait=cleanly and has_told_all)
            with self._ledger.lock:
                self._buffer.recall_locked()

    def _recover(self, error: HeadraceError) -> bool:
        """Recovers from an error, after a pause if that may help; returns False if the writer has failed."""
        stream = self._stream
        self._drop_stream()
        has_session = stream is not None and stream.session is not None
        # It is about the data: all before it stands, and what comes after may be fine.
        is_about_data = isinstance(error, SchemaError) or (isinstance(error, ConfigError) and has_session)
        refused_schema = stream.schema if stream is not None and isinstance(error, SchemaError) else None
        if is_about_data and self._buffer.refuse_first(error, refused_schema):
            return True
        if not isinstance(error, Transient):
            if not self._stopping:
                log.error("a writer to %s failed: %s", self._collection, error)
            self._buffer.fail(error)
            return False
        return self._pause(error, stream)

    def _pause(self, error: HeadraceError, stream: Stream | None) -> bool:
        now, limit = time.monotonic(), self._reconnect.give_up_after
        lived = now - stream.opened if stream is not None and stream.session is not None else 0.0
        is_progress = self._ledger.last_lsn != self._lsn_at_failure or lived > GOOD_STREAM_SECONDS
        if self._failing_since is None or is_progress:
            self._attempt, self._failing_since = 0, now
        self._lsn_at_failure = self._ledger.last_lsn
        if limit is not None and now - self._failing_since >= limit:
            log.error("a writer to %s gives up after %g s: %s", self._collection, limit, error)
            self._buffer.fail(error)
            return False
        pause = self._reconnect.pause(self._attempt)
        # The first few times, and then ever more rarely: a server may be away for hours.
        level = logging.DEBUG if self._attempt & (self._attempt - 1) else logging.WARNING
        log.log(level, "a writer to %s reconnects in %.2f s: %s", self._collection, pause, error)
        self._attempt += 1
        with self._ledger.lock:
            self._ledger.trouble = error
            self._buffer.work.wait_for(lambda: self._stopping, pause)
        return True
