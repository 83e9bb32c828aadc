"""Clients that write for as long as they are let, through every failure, and note down what they hear."""

from __future__ import annotations

import json
import threading
from collections import deque
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.certify.ingest.journal import Broken, Journal, Write
from headrace.client import connect
from headrace.client.receipts import Receipt
from headrace.client.sender import Reconnect
from headrace.client.writer import Writer
from headrace.errors import HeadraceError, WriteLost
from headrace.model.tiers import Tier

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("number", pa.int64())])
FLUSH_SECONDS = 120.0
BUFFER_BYTES = 32 << 10
"""Small, so that a client waits while its server is down, and does not write more the slower the machine."""


def batch_of(name: str, rows: int) -> pa.RecordBatch:
    return pa.record_batch([[name] * rows, list(range(rows))], schema=SCHEMA)


class Loader(threading.Thread):
    """Writes until `finish`. What goes wrong with it is raised there."""

    def __init__(self, name: str, url: str, collection: str, journal: Journal, pause: float) -> None:
        super().__init__(name=name, daemon=True)
        self._url, self._collection, self._journal, self._pause = url, collection, journal, pause
        self._done = threading.Event()
        self._numbers = 0
        self._failure: BaseException | None = None

    def finish(self, timeout: float = FLUSH_SECONDS) -> None:
        """Returns when it has heard everything of what it has written."""
        self._done.set()
        self.join(timeout)
        if self._failure is not None:
            raise self._failure
        if self.is_alive():
            raise Broken(f"{self.name} was not told everything in {timeout:.0f} s")

    def stop(self) -> None:
        """For a server that will not answer any more."""
        self._done.set()

    @property
    def is_cut_off(self) -> bool:
        """Whether it has no stream, so that it hears nothing until a server answers it again."""
        raise NotImplementedError

    def run(self) -> None:
        try:
            self._write_all()
        except BaseException as failure:  # noqa: BLE001 - `finish` raises it
            self._failure = failure

    def _write_all(self) -> None:
        raise NotImplementedError

    def _next(self, *, is_once: bool) -> Write:
        self._numbers += 1
        rows = 1 + self._numbers % 3
        return self._journal.wrote(f"{self.name}-{self._numbers}", self._collection, rows, is_once=is_once)


class ProducerLoader(Loader):
    """Our own client, which numbers its writes, coalesces them, and sends again what the server has not."""

    def __init__(
        self,
        name: str,
        url: str,
        collection: str,
        journal: Journal,
        pause: float = 0.015,
        retain: Tier = Tier.LOCAL_DISK,
    ) -> None:
        super().__init__(name, url, collection, journal, pause)
        self._retain = retain
        self._writer: Writer | None = None

    def stop(self) -> None:
        super().stop()
        if self._writer is not None:
            with suppress(HeadraceError):
                self._writer.close(0)

    @property
    def is_cut_off(self) -> bool:
        return self._writer is not None and self._writer.trouble is not None

    def _write_all(self) -> None:
        reconnect = Reconnect(first_pause=0.05, longest_pause=0.2, give_up_after=None)
        with connect(self._url) as client:
            writer = self._writer = client.writer(
                self._collection,
                producer=self.name,
                retain=self._retain,
                reconnect=reconnect,
                max_buffer=BUFFER_BYTES,
            )
            while not self._done.is_set():
                for _ in range(3):
                    write = self._next(is_once=True)
                    self._follow(write, writer.write(batch_of(write.name, write.rows)))
                self._done.wait(self._pause)
            with suppress(WriteLost):  # it is in the journal
                writer.flush(Tier.COMMITTED, FLUSH_SECONDS)
            with suppress(WriteLost):
                writer.close(FLUSH_SECONDS)

    def _follow(self, write: Write, receipt: Receipt) -> None:
        for tier in Tier:

            def reached(receipt: Receipt, tier: Tier = tier) -> None:
                self._journal.told(write, receipt.lsn, tier, receipt.snapshot_id)

            def failed(_: Receipt, error: HeadraceError) -> None:
                self._journal.failed(write, error)

            receipt.on(tier, reached, failed)


class StockLoader(Loader):
    """A Flight client with none of our code: one batch is one write, and a broken stream is a new stream.

    It has no producer, so it never sends a write again, and counts only on what it was told.
    """

    def __init__(self, name: str, url: str, collection: str, journal: Journal, pause: float = 0.01) -> None:
        super().__init__(name, url, collection, journal, pause)
        self.errors: deque[Exception] = deque(maxlen=100)
        self._listener: threading.Thread | None = None

    @property
    def is_cut_off(self) -> bool:
        return self._listener is None or not self._listener.is_alive()

    def _write_all(self) -> None:
        while not self._done.is_set():
            try:
                self._write_stream()
            except (flight.FlightError, pa.ArrowException, OSError) as error:
                self.errors.append(error)
                self._done.wait(0.1)

    def _write_stream(self) -> None:
        with flight.FlightClient(self._url) as client:
            descriptor = flight.FlightDescriptor.for_path("streaming_write", self._collection)
            writer, reader = client.do_exchange(descriptor)
            sent: deque[Write] = deque()
            listener = self._listener = threading.Thread(
                target=self._listen, args=(reader, sent), daemon=True
            )
            listener.start()
            try:
                writer.begin(SCHEMA)
                while not self._done.is_set() and listener.is_alive():
                    write = self._next(is_once=False)
                    sent.append(write)
                    writer.write_batch(batch_of(write.name, write.rows))
                    self._done.wait(self._pause)
                if self._done.is_set():
                    writer.done_writing()
                    listener.join(FLUSH_SECONDS)
            finally:
                reader.cancel()
                listener.join(FLUSH_SECONDS)
                with suppress(flight.FlightError, pa.ArrowException, OSError):
                    writer.close()

    def _listen(self, reader: Any, sent: deque[Write]) -> None:
        """Acknowledgements come in the order of the writes, so the first one of an LSN says whose it is."""
        known: dict[int, Write] = {}
        try:
            while True:
                chunk = reader.read_chunk()
                metadata = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata else {}
                lsns = chunk.data.column("lsn").to_pylist()
                for lsn, level in zip(lsns, chunk.data.column("durability_level").to_pylist(), strict=True):
                    tier = Tier[level]
                    if tier is Tier.MEMORY:
                        known[lsn] = sent.popleft()
                    self._journal.told(known[lsn], lsn, tier, metadata.get("snapshot_id"))
        except StopIteration:
            pass
        except (flight.FlightError, pa.ArrowException, OSError) as error:
            self.errors.append(error)
        except Exception as failure:  # noqa: BLE001 - `finish` raises it
            self._failure = failure
