"""A transaction may be larger than the memory that the connector takes for it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headrace.connectors.redis import spool
from headrace.model.key_range import FULL_RANGE
from headrace.model.materializations import Materialization
from headrace.protocol.messages import (
    Acknowledge,
    Apply,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    StartCommit,
    Store,
    ValidateBinding,
)
from headrace.protocol.stream import RuntimeStream
from headrace.testing import ConnectorProcess, materialization_of, samples
from tests.connectors.redis.driving import apply, ask, things, write

DOCUMENTS = 200_000
ROWS_PER_MESSAGE = 1000
PLACE = "x" * 1000


def peak_of(pid: int) -> int:
    """The most that a process has had in memory so far, in bytes."""
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) * 1024


def batches(count: int) -> Iterator[pa.RecordBatch]:
    for begin in range(0, count, ROWS_PER_MESSAGE):
        yield pa.record_batch({"id": np.arange(begin, min(begin + ROWS_PER_MESSAGE, count))})


def transact(stream: RuntimeStream, count: int) -> int:
    """Loads and stores this many documents in one transaction; says how many were there."""
    stream.send(Acknowledge())
    stream.receive()
    for keys in batches(count):
        stream.send(Load(0, keys))
    stream.send(Flush())
    loaded = 0
    while not isinstance(response := stream.receive(), Flushed):
        assert isinstance(response, Loaded)
        loaded += len(response.documents)
    nothing = pa.record_batch({"": [None] * ROWS_PER_MESSAGE}).select([])
    for keys in batches(count):
        texts = [f'{{"id":{number},"place":"{PLACE}"}}' for number in keys["id"].to_pylist()]
        exists = pa.array([loaded > 0] * len(keys))
        stream.send(Store(0, keys, nothing.slice(0, len(keys)), pa.array(texts, pa.string()), exists))
    stream.send(StartCommit({"n": 1}))
    stream.receive()
    return loaded


def opened(materialization: Materialization, connector: ConnectorProcess) -> RuntimeStream:
    stream = connector.client.transactions()
    stream.send(Open(materialization, "1", FULL_RANGE))
    stream.receive()
    return stream


def test_what_memory_cannot_hold_goes_to_a_file(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = []

    def small(max_size: int) -> Any:
        files.append(SpooledTemporaryFile(max_size=100))  # noqa: SIM115 - the spool closes it
        rolled_over.append(False)
        return files[-1]

    rolled_over: list[bool] = []
    rollover = SpooledTemporaryFile.rollover

    def tell(self: Any) -> None:
        rolled_over[files.index(self)] = True
        rollover(self)

    monkeypatch.setattr(SpooledTemporaryFile, "rollover", tell)
    monkeypatch.setattr(spool, "SpooledTemporaryFile", small)
    collection = things(text={"type": "string"})
    documents = [{"id": number, "text": "\u2603" * number} for number in range(200)]
    apply(redis_url, collection)
    assert write(redis_url, collection, *documents) == 0
    assert write(redis_url, collection, *documents) == 200
    assert len(rolled_over) >= 4, "loads and stores of two transactions"
    assert all(rolled_over)
    assert [json.loads(ask(redis_url, "GET", f"things:{row['id']}")) for row in documents] == documents


@pytest.mark.processes
@pytest.mark.full
def test_a_transaction_of_200_000_documents_in_bounded_memory(redis_url: str) -> None:
    with ConnectorProcess("redis") as connector:
        binding = ValidateBinding(samples.LAST_SEEN, {"prefix": "seen"})
        view = materialization_of(connector.client, "view", "redis", {"url": redis_url}, [binding])
        connector.client.apply(Apply(view, "1"))
        with opened(view, connector) as stream:
            transact(stream, 2 * ROWS_PER_MESSAGE)
            before = peak_of(connector.pid)
            assert transact(stream, DOCUMENTS) == 2 * ROWS_PER_MESSAGE
            assert transact(stream, DOCUMENTS) == DOCUMENTS
            grown = peak_of(connector.pid) - before
    assert ask(redis_url, "DBSIZE") == DOCUMENTS + 3
    assert (
        ask(redis_url, "STRLEN", f"seen:{DOCUMENTS - 1}")
        == len(f'{{"id":{DOCUMENTS - 1},"place":""}}') + 1000
    )
    megabytes = grown / 1e6
    assert megabytes < 100, "of documents there are 200 MB, in each direction"
