"""Holds the documents of the current transaction until StartCommit."""

from __future__ import annotations

from collections.abc import Iterator
from tempfile import SpooledTemporaryFile
from types import TracebackType

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from headrace.protocol.messages import Store
from headrace.protocol.packed_rows import pack_rows

# Above this a transaction goes to a temporary file.
MEMORY_BYTES = 8 * 1024 * 1024

_ROW = np.dtype([("order", np.uint64), ("offset", np.int64), ("length", np.int32)])


class Spool:
    """Documents by binding, in memory or in a temporary file, and about 30 bytes of memory for each.

    They come out in the order of a hash of their keys. A key occurs once in a transaction, so updates of the
    same key cannot be reordered; and however the runtime splits and orders the rows when it repeats a
    transaction, the batches are the same.
    """

    def __init__(self, bindings: int) -> None:
        self._file = SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115 - closed by __exit__
        self._rows: list[list[npt.NDArray[np.void]]] = [[] for _ in range(bindings)]
        self._end = 0

    def add(self, store: Store) -> None:
        if len(store.keys) == 0:
            return
        assert store.documents is not None, "a binding without documents is refused"
        ends, text = _text_of(store.documents)
        rows = np.empty(len(store.keys), dtype=_ROW)
        rows["order"] = [xxhash.xxh3_64_intdigest(key) for key in pack_rows(store.keys).to_pylist()]
        rows["offset"] = self._end + ends[:-1]
        rows["length"] = np.diff(ends)
        self._file.write(text)
        self._end += len(text)
        self._rows[store.binding].append(rows)

    def batches(self, binding: int, most_documents: int, most_bytes: int) -> list[npt.NDArray[np.void]]:
        """Returns the rows of a binding, split into those of each request."""
        if not self._rows[binding]:
            return []
        rows = np.concatenate(self._rows[binding])
        rows = rows[np.argsort(rows["order"], kind="stable")]
        ends = np.cumsum(rows["length"], dtype=np.int64)
        batches = []
        begin = 0
        while begin < len(rows):
            before = int(ends[begin - 1]) if begin else 0
            fitting = int(np.searchsorted(ends, before + most_bytes, side="right"))
            end = min(max(fitting, begin + 1), begin + most_documents)
            batches.append(rows[begin:end])
            begin = end
        return batches

    def documents(self, rows: npt.NDArray[np.void]) -> Iterator[bytes]:
        for offset, length in zip(rows["offset"].tolist(), rows["length"].tolist(), strict=True):
            self._file.seek(offset)
            yield self._file.read(length)

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def _text_of(documents: pa.StringArray) -> tuple[npt.NDArray[np.int64], memoryview]:
    """Returns all documents as one text, and the offsets at which each begins and the last one ends."""
    _, offsets, text = documents.buffers()
    inside = np.frombuffer(offsets, dtype=np.int32)[documents.offset : documents.offset + len(documents) + 1]
    return (inside - inside[0]).astype(np.int64), memoryview(text)[inside[0] : inside[-1]]
