"""Holds the rows of a transaction until they may be used."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile

import pyarrow as pa

BYTES_IN_MEMORY = 8 * 1024 * 1024


class Spool:
    """Rows of one schema, in memory while they are few and in a temporary file when they are many."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._file: SpooledTemporaryFile[bytes] | None = None
        self._writer: pa.RecordBatchStreamWriter | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        if self._writer is None:
            self._file = SpooledTemporaryFile(max_size=BYTES_IN_MEMORY)  # noqa: SIM115 - closed at the end of all
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        self._writer.write_batch(rows)

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Yields the rows in order, and forgets them."""
        if self._writer is None or self._file is None:
            return
        self._writer.close()
        file, self._file, self._writer = self._file, None, None
        with file:
            file.seek(0)
            yield from pa.ipc.open_stream(file)

    def close(self) -> None:
        """Forgets the rows."""
        if self._file is not None:
            self._file.close()
            self._file = self._writer = None
