"""Where dead letters are sent again: the ingest server, or a Kafka topic."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.types as pt
from pyarrow import flight

from headrace.client.connection import Connection
from headrace.client.failures import flight_errors
from headrace.client.messages import decode_notice, encode_options, encode_writes
from headrace.errors import ConfigError, SchemaError, ServerUnavailable
from headrace.model.tiers import Tier
from headrace.pipeline.dead_letters.kafka import send_to_kafka
from headrace.pipeline.dead_letters.replay import Batch, source_of
from headrace.pipeline.settings import (
    CollectionSource,
    FormatSource,
    KafkaSource,
    MaterializationSettings,
)

_ANSWER_SECONDS = 60.0
_PLACE = ("_lsn", "_row")  # that a row gets anew


class Targets:
    """Sends batches of one materialization; use it as `Send`."""

    def __init__(self, settings: MaterializationSettings, server: str, token: str | None = None) -> None:
        self._settings, self._server, self._token = settings, server, token
        self._connection: Connection | None = None

    def __call__(self, batch: Batch) -> None:
        match source_of(self._settings, batch):
            case CollectionSource(collection=collection):
                self._to_collection(collection, batch)
            case KafkaSource() as topic:
                send_to_kafka(topic, batch)
            case FormatSource(format=name):
                raise ConfigError(
                    f"dead letters of collection {batch.collection!r} came from Spark's format {name!r}, to "
                    "which nothing can be sent: take them from `dead-letter list --json`"
                )

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _to_collection(self, collection: str, batch: Batch) -> None:
        if self._connection is None:
            self._connection = Connection(self._server, self._token, None)
        answer = self._connection.action("describe_collection", {"name": collection}, _ANSWER_SECONDS)
        with pa.ipc.open_stream(base64.b64decode(answer["arrow_schema"])) as stream:
            schema = stream.schema
        write_once(self._connection, collection, batch.id, record_batch(schema, batch))


def write_once(connection: Connection, collection: str, producer: str, rows: pa.RecordBatch) -> None:
    """Sends one write, with the number 1 of its producer: a server that has had it does not take it again.

    Returns when it is on the server's disk.
    """
    descriptor = flight.FlightDescriptor.for_path("streaming_write", collection)
    with flight_errors():
        writer, reader = connection.flight.do_exchange(descriptor, connection.options(_ANSWER_SECONDS))
        try:
            writer.begin(rows.schema)
            writer.write_metadata(encode_options(producer, None))
            writer.write_with_metadata(rows, encode_writes(1, [rows.num_rows]))
            _wait_for_disk(reader, collection)
        finally:
            # The server would go on to tell of tiers that we do not wait for.
            reader.cancel()
            with suppress(Exception):
                writer.close()


def _wait_for_disk(reader: flight.FlightStreamReader, collection: str) -> None:
    lsn: int | None = None
    on_disk = -1
    while lsn is None or (lsn and on_disk < lsn):
        try:
            chunk = reader.read_chunk()
        except StopIteration:
            raise ServerUnavailable(f"the server ended before it had the rows of {collection!r}") from None
        metadata = chunk.app_metadata
        notice = decode_notice(chunk.data, None if metadata is None else metadata.to_pybytes())
        runs = (*(notice.session.assigned if notice.session else ()), *notice.assigned)
        for run in runs:
            lsn = run.lsn  # 0: committed, and so long ago that the number is forgotten
        known = {**(notice.session.watermarks if notice.session else {}), **dict(notice.watermarks)}
        on_disk = max(on_disk, known.get(Tier.LOCAL_DISK, -1))


def record_batch(schema: pa.Schema, batch: Batch) -> pa.RecordBatch:
    """The rows in the types of a collection."""
    documents = [_document(letter.id, letter.row) for letter in batch.letters]
    known = {*schema.names, *_PLACE}
    for letter, document in zip(batch.letters, documents, strict=True):
        unknown = next((name for name in document if name not in known), None)
        if unknown is not None:
            raise SchemaError(
                f"dead letter {letter.id} has {unknown!r}, and collection {batch.collection!r} does not: "
                "correct the row, and replay it with --from-file"
            )
    columns = []
    for field in schema:
        if field.name in _PLACE:
            continue
        values = []
        for letter, document in zip(batch.letters, documents, strict=True):
            try:
                values.append(_typed(document.get(field.name), field.type))
            except (TypeError, ValueError, ArithmeticError):
                shown = json.dumps(document.get(field.name), default=str)[:80]
                raise SchemaError(
                    f"dead letter {letter.id}: {field.name!r} is {field.type} in collection "
                    f"{batch.collection!r}, and {shown} is not: correct the row, and replay it with "
                    "--from-file"
                ) from None
        columns.append((field, values))
    try:
        arrays = [pa.array(values, field.type) for field, values in columns]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([field for field, _ in columns]))
    except (pa.ArrowException, OverflowError) as error:
        raise SchemaError(f"dead letters do not fit collection {batch.collection!r}: {error}") from None


def _document(name: str, row: str) -> dict[str, Any]:
    try:
        document = json.loads(row, parse_float=Decimal)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise SchemaError(f"dead letter {name} is no JSON object: correct it, and replay it with --from-file")
    return document


def _typed(value: Any, kind: pa.DataType) -> Any:
    """Reads a value from JSON, as Spark writes it and as a person would."""
    if value is None:
        return None
    if pt.is_string(kind) and not isinstance(value, str):
        # Objects and arrays are kept as text.
        return orjson.dumps(value, default=_exact).decode()
    if pt.is_struct(kind):
        return {field.name: _typed(_mapping(value).get(field.name), field.type) for field in kind}
    if pt.is_list(kind) or pt.is_large_list(kind):
        return [_typed(item, kind.value_type) for item in value]
    if pt.is_map(kind):
        return [(_typed(key, kind.key_type), _typed(item, kind.item_type)) for key, item in value.items()]
    if pt.is_timestamp(kind):
        moment = datetime.fromisoformat(value)
        return moment if kind.tz or moment.tzinfo is None else moment.replace(tzinfo=None)
    if pt.is_date(kind):
        return date.fromisoformat(value)
    if pt.is_decimal(kind):
        return Decimal(value)
    if pt.is_binary(kind) or pt.is_fixed_size_binary(kind):
        return base64.b64decode(value, validate=True)
    if pt.is_floating(kind):
        return float(value)
    if pt.is_integer(kind) and (isinstance(value, bool) or value != int(value)):
        raise TypeError
    return int(value) if pt.is_integer(kind) else value


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value


def _exact(value: Any) -> Any:
    return orjson.Fragment(str(value))
