"""What a million writes in flight take: subscriptions are ranges, so it is not much.

They are not yet committed, since the server commits only when told to, and somebody waits to hear of it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ingest_process.serving import SCHEMA, Serving, exchange, hang_up, rows
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

WRITES = 1_000_000
A_MESSAGE = 5_000
MOST_BYTES = 50 << 20

# No two of the writes are neighbours, as when as many clients write in turns; all tiers are waited for.
FRAGMENTED = """
import json, psutil
from headrace.ingest.ledger import Ledger
from headrace.model.tiers import Tier

ledger, memory = Ledger(Tier), psutil.Process().memory_info
before = memory().rss
for lsn in range(1, 2 * {writes}, 2):
    ledger.add(lsn, 1)
grown = memory().rss - before
taken = 0
while ranges := ledger.take(Tier.COMMITTED, 2 * {writes}, 16384):
    taken += len(ranges)
print(json.dumps({{"ranges": ledger.ranges, "grown": grown, "taken": taken}}))
"""


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


@pytest.mark.parametrize("writes", [WRITES])
def test_a_million_writes_none_beside_another(writes: int) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", FRAGMENTED.format(writes=writes)], capture_output=True, text=True, check=True
    )
    found = json.loads(answer.stdout)
    assert found["taken"] == writes
    assert found["ranges"] <= writes
    assert found["grown"] < MOST_BYTES
