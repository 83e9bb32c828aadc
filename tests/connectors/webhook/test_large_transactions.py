"""A transaction much larger than the memory that it may take."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.model.key_range import FULL_RANGE
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Open,
    StartCommit,
    StartedCommit,
    Store,
)
from headrace.testing import ConnectorProcess
from tests.connectors.webhook.driving import planned
from tests.connectors.webhook_endpoint import Handler, Received, Receiver

ROWS_PER_MESSAGE = 5_000
TEXT = "x" * 480


class CountingReceiver(Receiver):
    """Remembers which documents came, and not the documents."""

    def __init__(self, documents: int) -> None:
        super().__init__()
        self.seen = np.zeros(documents, dtype=np.int32)
        self.largest = 0

    def receive(self, handler: Handler, received: Received) -> None:
        self.largest = max(self.largest, len(received.raw))
        np.add.at(self.seen, [row["id"] for row in received.documents], 1)
        handler.answer(200)


def send(connector: ConnectorProcess, receiver: Receiver, documents: int) -> None:
    materialization = planned(receiver.address, client=connector.client)
    (binding,) = materialization.bindings
    with connector.client.transactions() as stream:
        stream.send(Open(materialization, "1", FULL_RANGE))
        stream.receive()
        stream.send(Acknowledge())
        assert isinstance(stream.receive(), Acknowledged)
        stream.send(Flush())
        stream.receive()
        for begin in range(0, documents, ROWS_PER_MESSAGE):
            numbers = range(begin, begin + ROWS_PER_MESSAGE)
            keys = pa.RecordBatch.from_arrays([pa.array(numbers, pa.int64())], schema=binding.key_schema)
            texts = pa.array([f'{{"id":{number},"text":"{TEXT}"}}' for number in numbers])
            nothing = pa.RecordBatch.from_arrays([], schema=binding.value_schema)
            stream.send(Store(0, keys, nothing, texts, pa.array([False] * ROWS_PER_MESSAGE)))
        stream.send(StartCommit({"n": 1}))
        assert isinstance(stream.receive(), StartedCommit)


def peak_megabytes(pid: int) -> float:
    (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(kilobytes) / 1024


@pytest.mark.processes
@pytest.mark.full
def test_memory_is_bounded() -> None:
    """150 MB of documents in all; what stays in memory is the spool's share and some bytes for each."""
    with ConnectorProcess("webhook") as connector:
        with CountingReceiver(20_000) as small:
            send(connector, small, 20_000)
        before = peak_megabytes(connector.pid)
        with CountingReceiver(300_000) as large:
            send(connector, large, 300_000)
        grown = peak_megabytes(connector.pid) - before
    assert (small.seen == 1).all()
    assert (large.seen == 1).all()
    assert large.largest < 1024 * 1024 + 10_000
    assert grown < 64
