"""Where a transaction keeps its rows between Load and Store: in memory, or on disk once they are many.

On disk rows are in buckets by their keys, those to store and those that were loaded alike. So a bucket can be
joined by itself, and only one is in memory at a time.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from types import TracebackType

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
        self._folder: Path | None = None
        self._files = ExitStack()
        self._writers: dict[tuple[str, int], pa.ipc.RecordBatchStreamWriter] = {}

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def is_on_disk(self) -> bool:
        return self._folder is not None

    def add(self, kind: str, rows: pa.RecordBatch, digests: KeyDigests) -> None:
        """`digests` are of the rows' keys, and are kept beside them as `_digest`."""
        if not rows.num_rows:
            return
        rows = rows.append_column(DIGEST, digest_column(digests))
        with self._lock:
            if self._folder is not None:
                self._write(kind, rows)
                return
            self._rows.setdefault(kind, []).append(rows)
            self._bytes += rows.nbytes
            if self._bytes > self._limit:
                self._spill()

    def buckets(self) -> Iterator[dict[str, pa.Table]]:
        """All rows of some keys at a time, by kind; nothing is added after this."""
        if self._folder is None:
            yield {kind: pa.Table.from_batches(rows) for kind, rows in self._rows.items()}
            return
        self._files.close()
        kinds = {kind for kind, _ in self._writers}
        for bucket in range(self._buckets):
            found = {kind: self._read(kind, bucket) for kind in kinds if (kind, bucket) in self._writers}
            if found:
                yield found

    def _spill(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-spool-"))
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
            file = self._files.enter_context(pa.OSFile(str(self._path(kind, bucket)), "wb"))
            writer = self._files.enter_context(pa.ipc.new_stream(file, schema, options=_OPTIONS))
            self._writers[kind, bucket] = writer
        return writer

    def _read(self, kind: str, bucket: int) -> pa.Table:
        path = self._path(kind, bucket)
        with pa.OSFile(str(path)) as file:
            table = pa.ipc.open_stream(file).read_all()
        path.unlink()
        return table

    def _path(self, kind: str, bucket: int) -> Path:
        assert self._folder is not None
        return self._folder / f"{kind}-{bucket}.arrow"


def digest_column(digests: KeyDigests) -> pa.FixedSizeBinaryArray:
    halves = np.stack([digests.high, digests.low], axis=1)
    return pa.FixedSizeBinaryArray.from_buffers(
        _DIGEST_TYPE, len(digests), [None, pa.py_buffer(np.ascontiguousarray(halves))]
    )
