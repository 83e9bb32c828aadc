"""One Flight stream: it sends groups, and a thread of its own receives the server's messages."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

import pyarrow as pa
from pyarrow import flight

from headrace.client.acknowledgements import Acknowledgements
from headrace.client.buffer import Buffer
from headrace.client.connection import Connection
from headrace.client.failures import error_of
from headrace.client.groups import Group
from headrace.client.messages import Session, decode_notice, encode_writes
from headrace.errors import HeadraceError, ServerUnavailable

# How long a server that has reported everything may take to end its side.
END_SECONDS = 1.0
# How long the true reason of a stream's end may take to arrive after a send has failed.
REASON_SECONDS = 5.0


class Stream:
    """Lives from one connection to its end. Messages are applied in the order in which they arrive."""

    def __init__(self, buffer: Buffer, acknowledgements: Acknowledgements, schema: pa.Schema) -> None:
        self.schema = schema
        self.opened = self.heard = time.monotonic()
        self.session: Session | None = None
        self.ended = False
        self.error: HeadraceError | None = None
        """The reason why it ended; None after a clean end."""
        self._buffer = buffer
        self._acknowledgements = acknowledgements
        self._lock = buffer.ledger.lock
        self._ending = threading.Lock()
        """Arrow aborts the process if one thread cancels a stream while another is done writing."""
        self._cancelled: HeadraceError | None = None
        self._thread: threading.Thread | None = None
        self._writer: flight.FlightStreamWriter = None
        self._reader: flight.FlightStreamReader = None

    def open(self, connection: Connection, collection: str, options: bytes, timeout: float) -> None:
        """Returns once the server has reported its state, and the buffer is arranged accordingly."""
        descriptor = flight.FlightDescriptor.for_path("streaming_write", collection)
        try:
            self._writer, self._reader = connection.flight.do_exchange(descriptor, connection.options())
            self._thread = threading.Thread(target=self._listen, name="headrace-acks", daemon=True)
            self._writer.begin(self.schema)
            self._writer.write_metadata(options)
        except (flight.FlightError, pa.ArrowException, OSError) as failure:
            self._start_listening()
            raise self._reason(failure) from None
        self._start_listening()
        with self._lock:
            if not self._buffer.ledger.changed.wait_for(lambda: self.session or self.ended, timeout):
                raise ServerUnavailable(f"the server did not open a session in {timeout:g} s")
        if self.session is None:
            raise self.error or ServerUnavailable("the server ended the stream before it opened a session")

    def send(self, group: Group) -> None:
        """Blocks for as long as the server does not read."""
        assert self._buffer.base is not None
        seq, batch, rows = group.unaccepted()
        try:
            self._writer.write_with_metadata(batch, encode_writes(self._buffer.base + seq, rows))
        except (flight.FlightError, pa.ArrowException, OSError) as failure:
            raise self._reason(failure) from None

    def cancel(self, reason: HeadraceError) -> None:
        """Breaks the stream from any thread, even while another one is blocked in sending."""
        with self._ending:
            self._cancelled = self._cancelled or reason
            if self._reader is not None:
                with suppress(Exception):
                    self._reader.cancel()

    def close(self, *, wait: bool = False) -> None:
        """Ends the stream, and returns when no more messages will arrive."""
        thread = self._thread
        if wait and thread is not None and self._end_writes():
            thread.join(END_SECONDS)
        self.cancel(ServerUnavailable("the writer closed the stream"))
        if thread is not None and thread.ident is not None and thread is not threading.current_thread():
            thread.join(REASON_SECONDS)
            if not thread.is_alive():
                with suppress(Exception):
                    self._writer.close()

    def _end_writes(self) -> bool:
        """Half-closes the stream; returns False if it is over already."""
        with self._ending:
            if self.ended or self._cancelled is not None:
                return False
            with suppress(Exception):
                self._writer.done_writing()
            return True

    def _start_listening(self) -> None:
        if self._thread is not None:
            self._thread.start()

    def _listen(self) -> None:
        error: HeadraceError | None = None
        try:
            while True:
                chunk = self._reader.read_chunk()
                if self._cancelled is not None:
                    break
                self.heard = time.monotonic()
                metadata = chunk.app_metadata
                notice = decode_notice(chunk.data, None if metadata is None else metadata.to_pybytes())
                if notice.session is not None:
                    self._acknowledgements.resume(notice.session)
                    self.session = notice.session
                self._acknowledgements.acknowledge(notice)
        except StopIteration:
            pass
        except Exception as failure:  # noqa: BLE001 - whatever it is must reach the sender, which waits
            error = error_of(failure)
        with self._lock:
            self.error = self._cancelled or error
            self.ended = True
            self._buffer.ledger.changed.notify_all()
            self._buffer.work.notify_all()

    def _reason(self, failure: BaseException) -> HeadraceError:
        """Returns why a send failed: the listening side receives the server's message about it."""
        with self._lock:
            self._buffer.ledger.changed.wait_for(lambda: self.ended or self._thread is None, REASON_SECONDS)
        return self.error or error_of(failure)
