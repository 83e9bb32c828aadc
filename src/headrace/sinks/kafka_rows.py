"""Reads the rows of a topic back, as any consumer could who reads what is committed."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.kafka.admin import end_offsets
from headrace.kafka.config import ClientOptions
from headrace.kafka.reading import read_topic
from headrace.sinks.contract import Place
from headrace.sinks.kafka_task import EPOCH_HEADER, MATERIALIZATION_HEADER, SCHEMA_HEADER

if TYPE_CHECKING:
    from confluent_kafka import Message

_AT_ONCE = 10_000
_COLUMN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+))\s+(.+?)(?:\s+not\s+null)?\s*", re.IGNORECASE | re.DOTALL)
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def read_rows(
    client: ClientOptions, place: Place, columns: Sequence[str], epoch: int | None
) -> Iterator[pa.RecordBatch]:
    """Of the writer, and of one epoch or all."""
    types = column_types(place.schema)
    rows: list[Mapping[str, Any]] = []
    is_counted = list(columns) == [place.epoch]
    for number, message in own_messages(client, place):
        if epoch not in (None, number):
            continue
        row = {} if is_counted else _value(message, dict(message.headers() or ()))
        rows.append({**row, place.epoch: number, place.owned: place.writer})
        if len(rows) == _AT_ONCE:
            yield _batch(rows, columns, types)
            rows = []
    if rows:
        yield _batch(rows, columns, types)


def own_messages(client: ClientOptions, place: Place) -> Iterator[tuple[int, Message]]:
    """Of the writer, with the epoch of each."""
    reached = dict.fromkeys(end_offsets(client, place.location), 0)
    for message in read_topic(client, place.location, committed=True, reached=reached):
        headers: dict[str, Any] = dict(message.headers() or ())
        if headers.get(MATERIALIZATION_HEADER) == place.writer.encode() and EPOCH_HEADER in headers:
            yield int(headers[EPOCH_HEADER]), message


def column_types(ddl: str) -> dict[str, pa.DataType | None]:
    """Of Spark's DDL, in Arrow; None for those that are what they are."""
    found: dict[str, pa.DataType | None] = {}
    for column in filter(None, map(_COLUMN.fullmatch, _split(ddl))):
        text = column[3].lower()
        decimal = _DECIMAL.fullmatch(text)
        known = pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _TYPES.get(text)
        found[column[1].replace("``", "`") if column[1] else column[2]] = known
    return found


def _split(ddl: str) -> Iterator[str]:
    """At the commas between columns, and not at those in their names and types."""
    begin = depth = 0
    is_quoted = False
    for at, letter in enumerate(ddl):
        if letter == "`":
            is_quoted = not is_quoted
        elif is_quoted:
            continue
        elif letter in "<(":
            depth += 1
        elif letter in ">)":
            depth -= 1
        elif letter == "," and not depth:
            yield ddl[begin:at]
            begin = at + 1
    yield ddl[begin:]


def _value(message: Message, headers: Mapping[str, Any]) -> Mapping[str, Any]:
    value = message.value()
    if value is None:
        return {}
    if SCHEMA_HEADER not in headers:
        parsed: Mapping[str, Any] = json.loads(value)
        return parsed
    from fastavro import schemaless_reader

    read: Any = schemaless_reader(io.BytesIO(value), _avro(headers[SCHEMA_HEADER]), None)
    return dict(read)


@lru_cache(16)
def _avro(schema: bytes) -> Any:
    from fastavro import parse_schema

    return parse_schema(json.loads(schema))


def _batch(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], types: Mapping[str, pa.DataType | None]
) -> pa.RecordBatch:
    arrays = [_array([row.get(name) for row in rows], types.get(name)) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _array(values: list[Any], kind: pa.DataType | None) -> pa.Array:
    parse = _parser(kind)
    if parse is not None:  # JSON has no such values, and Avro has them already
        values = [parse(value) if isinstance(value, str) else value for value in values]
    return pa.array(values, kind)


def _parser(kind: pa.DataType | None) -> Callable[[str], Any] | None:
    if kind is None:
        return None
    if pa.types.is_decimal(kind):
        return Decimal
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat
    if pa.types.is_date(kind):
        return date.fromisoformat
    return base64.b64decode if pa.types.is_binary(kind) else None
