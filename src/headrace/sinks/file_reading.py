"""Reads Parquet files of a place, wherever they are, as if each had all of the place's columns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.objects import ObjectStore
from headrace.sinks.roots import Root


def read_file(
    root: Root, path: str, constants: Mapping[str, str | None], wanted: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """`constants` are columns that are not in the file, such as those that it is laid out by, as text.

    A column that is nowhere is null.
    """
    with closing(_open(root, path)) as source, pq.ParquetFile(source, pre_buffer=True) as file:
        present = set(file.schema_arrow.names)
        stored = [field.name for field in wanted if field.name in present and field.name not in constants]
        for batch in file.iter_batches(columns=stored):
            yield _completed(batch, constants, wanted)


def read_listed(root: Root, wanted: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """A task of Spark's: each row of its one column names a file, as JSON, with `path` and `partition`."""
    for batch in batches:
        for listed in batch.column(0).to_pylist():
            file = json.loads(listed)
            yield from read_file(root, file["path"], file["partition"], wanted)


def _completed(
    batch: pa.RecordBatch, constants: Mapping[str, str | None], wanted: pa.Schema
) -> pa.RecordBatch:
    arrays = []
    for field in wanted:
        if field.name in constants:
            value = _value(constants[field.name], field.type)
            arrays.append(pa.repeat(value, batch.num_rows))
        elif field.name in batch.schema.names:
            arrays.append(batch.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Of a partition's name."""
    if text is None or pa.types.is_string(kind):
        return pa.scalar(text, kind)
    scalar = pa.scalar(text, pa.string())
    if pa.types.is_timestamp(kind) and not text.endswith("Z"):  # Spark's, in the session's zone, which is UTC
        return scalar.cast(pa.timestamp("us")).cast(kind)
    return scalar.cast(kind)


def _open(root: Root, path: str) -> Any:
    if root.folder is not None:
        return pa.OSFile(str(root.folder / path))
    return _ObjectFile(root.objects(), path)


class _ObjectFile(io.RawIOBase):
    """An object as a file that can be read anywhere in it."""

    def __init__(self, store: ObjectStore, path: str) -> None:
        super().__init__()
        self._store, self._path = store, path
        self._what = f"read {path}"
        self._size = store.size(path, self._what)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = start + offset
        return self._at

    def read(self, size: int | None = -1) -> bytes:
        end = self._size if size is None or size < 0 else min(self._at + size, self._size)
        data = self._store.get(self._path, self._what, start=self._at, end=end)
        self._at += len(data)
        return data
