"""Scans of tables as the server sees them."""

from __future__ import annotations

import json
import logging
import threading
import time
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.ingest.iceberg.errors import ScanFailed
from headrace.ingest.iceberg.frames import HEAD_BYTES, Frame, decode_head
from headrace.ingest.iceberg.parent import Child, ChildGone, python_module
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.wal.state import Committed

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0


class Scanner:
    """Processes that read tables, each for one scan at a time; they are started as needed and kept."""

    def __init__(
        self,
        settings: CatalogSettings,
        most: int = 2,
        command: Sequence[str] = (),
        patience: float = 30.0,
    ) -> None:
        """`patience`: for how many seconds a reader may take nothing while others wait."""
        self._settings, self._patience = settings, patience
        self._command = command or python_module("headrace.ingest.iceberg.scan_process")
        self._slots = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._idle: list[Child] = []
        self._scans: set[Scan] = set()  # under way
        self._closed = False

    def scan(
        self, collection: str, from_lsn: int | None = None, to_lsn: int | None = None, timeout: float = 60
    ) -> Scan:
        """The committed rows with from_lsn <= LSN <= to_lsn, in any order.

        Waits while as many scans as may be are running, and ends one whose reader makes no progress. The time
        limit is for that and then for each batch.
        """
        deadline = time.monotonic() + timeout
        while not self._slots.acquire(timeout=min(_LOOK_SECONDS, max(deadline - time.monotonic(), 0.0))):
            self._end_stalled()
            if time.monotonic() >= deadline:
                raise ScanFailed("as many scans as may be are running: try again later")
        request = {"collection": collection, "from_lsn": from_lsn, "to_lsn": to_lsn}
        try:
            child = self._ready(request, time.monotonic() + timeout)
        except BaseException:
            self._slots.release()
            raise
        scan = Scan(self, child, timeout)
        with self._lock:
            self._scans.add(scan)
        return scan

    def _end_stalled(self) -> None:
        """Others wait for a place, and whoever does not read has no use for it."""
        with self._lock:
            stalled = [scan for scan in self._scans if scan.idle_seconds > self._patience]
        for scan in stalled:
            log.warning(
                "a read was ended: nothing of it was taken for %.0f s, and others wait", self._patience
            )
            scan.end(
                ScanFailed(f"nothing was read for {self._patience:.0f} s, and others waited: read again")
            )

    def close(self) -> None:
        """Ends the processes that are idle now, and the others when their scans are over."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for child in idle:
            child.close()

    def __enter__(self) -> Scanner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ready(self, request: dict[str, Any], deadline: float) -> Child:
        """A process that has the request; one that died while it was idle is replaced."""
        while True:
            with self._lock:
                child = self._idle.pop() if self._idle else None
            is_new = child is None
            child = child or Child(self._command)
            try:
                if is_new:
                    child.send(self._settings.to_json(), deadline)
                child.send(request, deadline)
            except ChildGone as gone:
                child.close()
                if is_new:
                    raise ScanFailed(f"the process that scans is of no more use: {gone}") from gone
            else:
                return child

    def _release(self, scan: Scan, child: Child, reusable: bool) -> None:
        with self._lock:
            self._scans.discard(scan)
            keep = reusable and not self._closed
            if keep:
                self._idle.append(child)
        if not keep:
            child.close()
        self._slots.release()


class Scan:
    """One scan. Close it if it is not read to its end: until then it holds a process."""

    committed: Committed
    """How far the table is in the snapshot that is read."""
    schema: pa.Schema
    """The table's, with `_lsn` and `_row`; only these two if there is no table yet."""

    def __init__(self, scanner: Scanner, child: Child, timeout: float) -> None:
        self._scanner = scanner
        self._child = child
        self._timeout = timeout
        self._is_over = False
        self._lock = threading.Lock()
        self._taken_at: float | None = time.monotonic()  # None while the reader waits for more
        self._failure: ScanFailed | None = None
        kind, body = self._frame()
        if kind is not Frame.HEADER:
            self._release(reusable=False)
            raise ScanFailed(f"the process that scans began with {kind.name}")
        header = json.loads(body)
        self.committed = Committed(header["lsn"], header["snapshot_id"])
        self.schema = pa.ipc.read_schema(pa.py_buffer(b64decode(header["schema"])))

    @property
    def idle_seconds(self) -> float:
        """Since the reader took what there was; 0 while it waits for more."""
        taken_at = self._taken_at
        return 0.0 if taken_at is None else time.monotonic() - taken_at

    def end(self, failure: ScanFailed) -> None:
        """Ends it for its reader, who hears why when it wants more."""
        self._failure = failure
        self._release(reusable=False)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        while True:
            if self._failure is not None:
                raise self._failure
            if self._is_over:
                return
            self._taken_at = None
            kind, body = self._frame()
            self._taken_at = time.monotonic()
            if kind is Frame.END:
                self._release(reusable=True)
                return
            yield pa.ipc.read_record_batch(pa.py_buffer(body), self.schema)

    def reader(self) -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def close(self) -> None:
        """Ends the scan; its process with it, if it has more to say."""
        self._release(reusable=False)

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _frame(self) -> tuple[Frame, bytes]:
        deadline = time.monotonic() + self._timeout
        try:
            kind, length = decode_head(self._child.read(HEAD_BYTES, deadline))
            body = self._child.read(length, deadline)
        except (ChildGone, OSError, ValueError) as error:
            self._release(reusable=False)
            raise ScanFailed(f"the process that scans is of no more use: {error}") from error
        if kind is Frame.ERROR:
            self._release(reusable=True)
            raise HeadraceError.from_json(body.decode())
        return kind, body

    def _release(self, reusable: bool) -> None:
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
        self._scanner._release(self, self._child, reusable)
