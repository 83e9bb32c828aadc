"""What a shard's task does: it sends its rows in one transaction, which it leaves open on the broker."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.model.checkpoints import JsonObject, to_json
from headrace.sinks.kafka_checkpoints import Record
from headrace.sinks.kafka_options import TopicOptions
from headrace.sinks.kafka_producer import ATTEMPT_HEADER, Offsets, Prepared, Transaction, mark_of
from headrace.sinks.kafka_values import KEY, VALUE

EPOCH_HEADER = "headrace.epoch"
MATERIALIZATION_HEADER = "headrace.materialization"
SCHEMA_HEADER = "headrace.schema"
RESULT_DDL = "result string"


@dataclass(frozen=True)
class Shipment:
    """What all shards of an epoch have in common."""

    options: TopicOptions
    record: Record
    headers: tuple[tuple[str, bytes], ...]
    offsets: Offsets = field(default_factory=dict)
    """Where the epoch ends in topics that it was read from."""
    avro: str = ""
    """The schema of values; they are JSON if empty."""


def ship(shipment: Shipment) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """For `mapInArrow`; each task answers with one row, as `answer_of` its shard."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        # A second attempt of a task has the same number, and so the same transactional id.
        answer = answer_of(shipment, context.partitionId(), batches)
        yield pa.RecordBatch.from_pydict({"result": [to_json(answer)]})

    return task


def answer_of(shipment: Shipment, shard: int, batches: Iterable[pa.RecordBatch]) -> JsonObject:
    """What a shard has `prepared`, if anything, or why it has `failed`."""
    try:
        prepared = prepare_shard(shipment, shard, batches)
    except HeadraceError as error:
        return {"shard": shard, "failed": error.to_json()}
    return {"shard": shard, "prepared": prepared.to_json() if prepared else None}


def prepare_shard(shipment: Shipment, shard: int, batches: Iterable[pa.RecordBatch]) -> Prepared | None:
    """None if there are no rows; but one of several shards also says so in a transaction."""
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None and shipment.record.shards == 1:
        return None
    rows = 0
    with Transaction(shipment.options, shipment.options.transactional_id(shard)) as transaction:
        transaction.describe(shipment.record, shipment.offsets if shard == 0 else {})
        mark = mark_of(shipment.record, transaction.identity)
        headers = [*shipment.headers, (ATTEMPT_HEADER, mark)]
        if shipment.avro:
            headers.append((SCHEMA_HEADER, shipment.avro.encode()))
        for batch in chain([first] if first else [], filled):
            transaction.send_all(shipment.options.topic, _messages(shipment, batch), headers)
            rows += batch.num_rows
        return transaction.leave_open(rows)


def _messages(shipment: Shipment, batch: pa.RecordBatch) -> Iterable[tuple[Any, Any]]:
    values = batch.column(VALUE).to_pylist()
    encoded = _as_avro(shipment.avro, values) if shipment.avro else values
    return zip(batch.column(KEY).to_pylist(), encoded, strict=True)


def _as_avro(schema: str, values: Iterable[Any]) -> Iterator[bytes]:
    from fastavro import parse_schema, schemaless_writer

    parsed = parse_schema(json.loads(schema))
    for value in values:
        buffer = io.BytesIO()
        schemaless_writer(buffer, parsed, value)
        yield buffer.getvalue()
