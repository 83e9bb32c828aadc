"""What a million writes in flight take: subscriptions are ranges, so it is not much.

They are not yet committed, since the server commits only when told to, and somebody waits to hear of it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.ingest_process.serving import SCHEMA, Serving, exchange, hang_up, rows
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

WRITES = 1_000_000
A_MESSAGE = 5_000
MOST_BYTES = 50 << 20


def in_flight(data: Path, levels: list[str]) -> int:
    """How much more memory a server has after a client has sent a million writes and is still there."""
    with Serving(data, config={"ingest": {"commit_interval": "1h"}}) as server, server.client() as client:
        writer, reader = exchange(client, "flying")
        writer.begin(SCHEMA)
        batch, many = rows(1, A_MESSAGE), json.dumps({"rows": [1] * A_MESSAGE}).encode()
        writer.write_with_metadata(batch, json.dumps({"rows": [1] * A_MESSAGE, "levels": levels}).encode())
        _hear(reader, A_MESSAGE)
        before = server.rss
        for _ in range(WRITES // A_MESSAGE - 1):
            writer.write_with_metadata(batch, many)
            _hear(reader, A_MESSAGE)
        server.action("flush", level="OBJECT_STORAGE", timeout=DEADLINE_SECONDS)
        wait_until(lambda: server.sessions()[0]["writes"] == WRITES)
        grown = server.rss - before
        if "COMMITTED" in levels:
            assert server.metric('headrace_pending_subscriptions{tier="iceberg"}') == WRITES
        hang_up(writer, reader)
    return grown


def _hear(reader: Any, count: int) -> None:
    """Reads until so many writes are acknowledged for the first time."""
    while count > 0:
        batch = reader.read_chunk().data
        if batch is not None:
            count -= batch.column("durability_level").to_pylist().count("MEMORY")


@pytest.mark.full
def test_a_million_writes_of_one_client(tmp_path: Path) -> None:
    alone = in_flight(tmp_path / "memory", ["MEMORY"])
    subscribed = in_flight(tmp_path / "all", ["MEMORY", "COMMITTED"])
    print(f"grew by {alone:,} bytes without subscriptions, by {subscribed:,} with")  # noqa: T201
    assert subscribed - alone < MOST_BYTES
