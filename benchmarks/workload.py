"""Documents of 200 bytes, as Arrow batches, and a stream that carries them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from headrace.model.collections import Collection
from headrace.model.key_range import FULL_RANGE
from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import (
    Acknowledge,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    StartCommit,
    Store,
)
from headrace.protocol.stream import RuntimeStream

DOCUMENT_BYTES = 200
ROWS_PER_MESSAGE = 10_000

ACCOUNTS = Collection(
    "accounts",
    ("/id",),
    {
        "type": "object",
        "required": ["id"],
        "reduce": {"strategy": "merge"},
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string"},
            "balance": {"type": "number"},
            "active": {"type": "boolean"},
        },
    },
)


class Batch:
    """Rows with keys from `begin` on."""

    def __init__(self, begin: int, count: int, generation: int) -> None:
        ids = np.arange(begin, begin + count)
        texts = [f"account {number} of generation {generation}" for number in ids]
        self.keys = pa.record_batch({"id": pa.array(ids, pa.int64())})
        self.values = pa.record_batch(
            {
                "name": pa.array(texts),
                "balance": pa.array(ids * 0.25 + generation),
                "active": pa.array(ids % 2 == 0),
            }
        )
        self.documents = pa.array([_document(number, text) for number, text in zip(ids, texts, strict=True)])


def _document(number: object, text: str) -> str:
    start = f'{{"id":{number},"name":"{text}","padding":"'
    return start + "x" * (DOCUMENT_BYTES - len(start) - 2) + '"}'


def batches(rows: int, generation: int = 0) -> Iterator[Batch]:
    for begin in range(0, rows, ROWS_PER_MESSAGE):
        yield Batch(begin, min(ROWS_PER_MESSAGE, rows - begin), generation)


def opened(client: ConnectorClient, materialization: Materialization) -> RuntimeStream:
    stream = client.transactions()
    stream.send(Open(materialization, "1", FULL_RANGE))
    stream.receive()
    return stream


def load(stream: RuntimeStream, keys: Iterator[pa.RecordBatch]) -> int:
    """The first half of a transaction; answers how many documents exist."""
    stream.send(Acknowledge())
    for part in keys:
        stream.send(Load(0, part))
    while not stream.acknowledged:
        stream.receive()
    stream.send(Flush())
    found = 0
    while not isinstance(response := stream.receive(), Flushed):
        assert isinstance(response, Loaded)
        found += len(response.keys)
    return found


def store(stream: RuntimeStream, rows: Iterator[Batch], exists: bool) -> None:
    """The second half of a transaction."""
    for batch in rows:
        there = pa.array(np.full(len(batch.keys), exists))
        stream.send(Store(0, batch.keys, batch.values, batch.documents, there))
    stream.send(StartCommit({"done": True}))
    stream.receive()
