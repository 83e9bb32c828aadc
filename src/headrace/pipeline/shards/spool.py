"""Where a transaction keeps its rows between Load and Store: in memory, or on disk once they are many.

On disk rows are in buckets by their keys, those to store and those that were loaded alike. So a bucket can be
joined by itself, and only one is in memory at a time. The files have no names: a worker that is killed leaves
none behind.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from threading import Lock
from types import TracebackType
from typing import IO

import numpy as np
import pyarrow as pa

from headrace.protocol.key_digests import KeyDigests

DIGEST = "_digest"
_DIGEST_TYPE = pa.binary(16)
_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Spool:
    """Rows of several kinds, each kind with a schema of its own; `limit` is in bytes, for all of them.

    Several threads may add.
    """

    def __init__(self, limit: int = 64 << 20, buckets: int = 64) -> None:
        self._limit, self._buckets = limit, buckets
        self._lock = Lock()
        self._rows: dict[str, list[pa.RecordBatch]] = {}
        self._bytes = 0
        self.is_on_disk = False
        self._files: dict[tuple[str, int], IO[bytes]] = {}
        self._writers: dict[tuple[str, int], pa.ipc.RecordBatchStreamWriter] = {}
        self._open, self._writing = ExitStack(), ExitStack()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._open:
            self._writing.close()

    def add(self, kind: str, rows: pa.RecordBatch, digests: KeyDigests) -> None:
        """`digests` are of the rows' keys, and are kept beside them as `_digest`."""
        if not rows.num_rows:
            return
        rows = rows.append_column(DIGEST, digest_column(digests))
        with self._lock:
            if self.is_on_disk:
                self._write(kind, rows)
                return
            self._rows.setdefault(kind, []).append(rows)
            self._bytes += rows.nbytes
            if self._bytes > self._limit:
                self._spill()

    def buckets(self) -> Iterator[dict[str, pa.Table]]:
        """All rows of some keys at a time, by kind; nothing is added after this."""
        if not self.is_on_disk:
            yield {kind: pa.Table.from_batches(rows) for kind, rows in self._rows.items()}
            return
        self._writing.close()
        kinds = {kind for kind, _ in self._files}
        for bucket in range(self._buckets):
            found = {kind: self._read(kind, bucket) for kind in kinds if (kind, bucket) in self._files}
            if found:
                yield found

    def _spill(self) -> None:
        self.is_on_disk = True
        held, self._rows = self._rows, {}
        for kind, batches in held.items():
            for rows in batches:
                self._write(kind, rows)

    def _write(self, kind: str, rows: pa.RecordBatch) -> None:
        ends = np.frombuffer(rows[DIGEST].buffers()[1], np.uint64)[1::2]
        numbers = ends[rows[DIGEST].offset :][: rows.num_rows] % np.uint64(self._buckets)
        for bucket in np.unique(numbers):
            chosen = rows.filter(pa.array(numbers == bucket))
            self._writer(kind, int(bucket), rows.schema).write_batch(chosen)

    def _writer(self, kind: str, bucket: int, schema: pa.Schema) -> pa.ipc.RecordBatchStreamWriter:
        writer = self._writers.get((kind, bucket))
        if writer is None:
            file = tempfile.TemporaryFile(prefix="headrace-spool-")  # noqa: SIM115 - closed with the others
            self._open.enter_context(file)
            writer = self._writing.enter_context(pa.ipc.new_stream(file, schema, options=_OPTIONS))
            self._files[kind, bucket], self._writers[kind, bucket] = file, writer
        return writer

    def _read(self, kind: str, bucket: int) -> pa.Table:
        with self._files[kind, bucket] as file:  # which frees its place on the disk
            file.seek(0)
            return pa.ipc.open_stream(file).read_all()


def digest_column(digests: KeyDigests) -> pa.FixedSizeBinaryArray:
    halves = np.stack([digests.high, digests.low], axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(
        _DIGEST_TYPE, len(digests), [None, pa.py_buffer(np.ascontiguousarray(halves))]
    )
