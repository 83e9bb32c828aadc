"""Encodes rows as the bytes of a file, in bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.connectors.files.config import FilesResource
from headrace.connectors.files.storage import Sink
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding, arrow_schema

ROW_GROUP_BYTES = 32 << 20
"""A row group is written when its rows have this size in memory, so no more of them is ever held."""

_JSON_LINES_SUFFIX = {"none": "jsonl", "gzip": "jsonl.gz", "zstd": "jsonl.zst"}


def suffix(resource: FilesResource) -> str:
    return "parquet" if resource.format == "parquet" else _JSON_LINES_SUFFIX[resource.codec]


def file_schema(binding: Binding) -> pa.Schema:
    """Returns the schema of the keys, the values and the document. All are nullable, as later columns must
    be."""
    schema = arrow_schema((*binding.keys, *binding.values))
    return schema.append(pa.field(binding.document, pa.string())) if binding.document else schema


class Encoder(ABC):
    """Writes rows into a sink, which it does not close."""

    @abstractmethod
    def write(self, rows: pa.RecordBatch) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """Writes the remaining rows; the sink then contains a complete file."""


def encoder(binding: Binding, resource: FilesResource, about: bytes, sink: Sink) -> Encoder:
    """Returns an encoder. `about` is stored in the file, if its format has metadata."""
    if resource.format == "parquet":
        return ParquetEncoder(file_schema(binding).with_metadata({"headrace": about}), resource.codec, sink)
    return JsonLinesEncoder(binding, resource.codec, sink)


class ParquetEncoder(Encoder):
    def __init__(self, schema: pa.Schema, codec: str, sink: Sink) -> None:
        self._schema = schema
        self._writer = pq.ParquetWriter(sink, schema, compression=codec)
        self._rows: list[pa.RecordBatch] = []
        self._bytes = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write_row_group()

    def close(self) -> None:
        try:
            if self._rows:
                self._write_row_group()
        finally:
            self._writer.close()

    def _write_row_group(self) -> None:
        table = pa.Table.from_batches(self._rows).replace_schema_metadata(self._schema.metadata)
        self._rows, self._bytes = [], 0
        self._writer.write_table(table, row_group_size=len(table))


class JsonLinesEncoder(Encoder):
    """Writes one object per row, with null fields included and JSON fields unquoted."""

    def __init__(self, binding: Binding, codec: str, sink: Sink) -> None:
        kinds = [field.type.kind for field in (*binding.keys, *binding.values)]
        if binding.document:
            kinds.append(Kind.JSON)
        self._converters = [_CONVERTERS.get(kind) for kind in kinds]
        self._file = sink if codec == "none" else pa.CompressedOutputStream(sink, codec)
        self._compressed = codec != "none"

    def write(self, rows: pa.RecordBatch) -> None:
        names = rows.schema.names
        columns = [
            _converted(column.to_pylist(), convert)
            for column, convert in zip(rows.columns, self._converters, strict=True)
        ]
        self._file.write(
            b"".join(
                orjson.dumps(dict(zip(names, row, strict=True)), option=_JSON)
                for row in zip(*columns, strict=True)
            )
        )

    def close(self) -> None:
        if self._compressed:
            self._file.close()


_JSON = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z


def _one_line(text: str) -> orjson.Fragment:
    """Replaces line breaks in JSON text. They can only be white space between tokens: within a string they
    are escaped."""
    return orjson.Fragment(text.replace("\n", " ").replace("\r", " "))


def _plain(number: Decimal) -> str:
    return f"{number:f}"


_CONVERTERS: dict[Kind, Callable[[Any], Any]] = {Kind.JSON: _one_line, Kind.DECIMAL: _plain}


def _converted(values: Sequence[Any], convert: Callable[[Any], Any] | None) -> Sequence[Any]:
    if convert is None:
        return values
    return [None if value is None else convert(value) for value in values]
