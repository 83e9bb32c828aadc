"""Clients that do not read, or die: they hold up nobody but themselves, and give everything back."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.ingest_process.serving import SCHEMA, Serving, exchange, hang_up, read_back, rows, write_all
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

# What a stream may leave behind in the server's memory, whatever it sent.
MOST_GROWTH = 150 << 20
COALESCED = 1_000

# Writes for ever, and never reads.
DEAD_CLIENT = """
import sys
import pyarrow as pa
from pyarrow import flight
batch = pa.record_batch({"id": pa.array(range(100), pa.int64()), "text": ["x" * 100] * 100})
with flight.FlightClient(sys.argv[1]) as client:
    writer, reader = client.do_exchange(flight.FlightDescriptor.for_path("streaming_write", "dead"))
    writer.begin(batch.schema)
    while True:
        writer.write_batch(batch)
"""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Serving]:
    """A server that takes no more than 200 kB of log before a commit, which has to be asked for."""
    config = {"ingest": {"commit_interval": "1h", "log_bytes": 200_000, "segment_bytes": "64KiB"}}
    with Serving(tmp_path / "data", config=config) as serving:
        yield serving


def many(first: int) -> pa.RecordBatch:
    return rows(first, COALESCED, "x" * 20)


def in_rows() -> list[int]:
    return [1] * COALESCED


@pytest.mark.parametrize("is_producer", [False, True], ids=["stock", "producer"])
def test_a_client_that_never_reads(is_producer: bool, unharmed: Serving) -> None:
    """Its acknowledgements would be far more than gRPC holds for it."""
    with unharmed.client() as client:
        writer, reader = exchange(client, "deaf")
        writer.begin(SCHEMA)
        if is_producer:
            writer.write_metadata(b'{"producer": "deaf"}')
        write_all(client, "warm", [many(0)])
        before = unharmed.rss
        for number in range(400):
            first = 1 + number * COALESCED
            said: dict[str, Any] = {"rows": in_rows(), **({"seq": first} if is_producer else {})}
            writer.write_with_metadata(many(first), json.dumps(said).encode())
            if number % 100 == 0:  # somebody else is served all the while
                assert len(write_all(client, "beside", [rows(number)])) == 1
        wait_until(lambda: _writes(unharmed, "deaf") == 400 * COALESCED, "all writes")
        unharmed.action("flush", level="OBJECT_STORAGE", timeout=DEADLINE_SECONDS)
        assert unharmed.rss - before < MOST_GROWTH
        # What it did not read is still there for it.
        assert _read_until(reader, "OBJECT_STORAGE", 400 * COALESCED) == 400 * COALESCED
        hang_up(writer, reader)


def _writes(server: Serving, collection: str) -> int:
    return sum(session["writes"] for session in server.sessions() if session["collection"] == collection)


def _read_until(reader: Any, level: str, count: int) -> int:
    found = 0
    while found < count:
        batch = reader.read_chunk().data
        if batch is not None:
            found += batch.column("durability_level").to_pylist().count(level)
    return found


def test_a_throttled_client_is_told_and_others_too(small: Serving) -> None:
    with small.client() as client:
        writer, reader = exchange(client, "eager")
        writer.begin(SCHEMA)
        writer.write_metadata(b'{"levels": ["MEMORY"]}')
        sent = 0
        while not any(session["throttled"] for session in small.sessions()):
            writer.write_batch(rows(sent, 1, "x" * 50_000))
            sent += 1
        for _ in range(10):  # small, so that the stream's window has room for all of them
            writer.write_batch(rows(sent, 1, "x" * 1_000))
            sent += 1
        throttled = _statuses(reader, "throttled")
        reason = next(throttled)
        assert re.fullmatch(r"[\d,]+ bytes of log wait for (Iceberg|object storage)", reason)
        (session,) = small.sessions()
        assert session["throttled"] == reason
        assert session["writes"] <= sent - 10
        status, page = small.page("/readyz")
        assert (status, json.loads(page)["status"]) == (503, "degraded")  # nothing is read meanwhile
        wait_until(lambda: small.metric("headrace_throttled_clients") == 1)

        while small.sessions()[0]["writes"] < sent:  # a commit makes room for as much again
            small.action("flush", timeout=DEADLINE_SECONDS)
        assert next(throttled) is None
        hang_up(writer, reader)
        wait_until(lambda: not small.sessions())
        small.action("flush", timeout=DEADLINE_SECONDS)
        assert read_back(client, "eager")["id"].to_pylist() == list(range(sent))


def _statuses(reader: Any, name: str) -> Iterator[Any]:
    while True:
        metadata = reader.read_chunk().app_metadata
        said = json.loads(metadata.to_pybytes()) if metadata is not None else {}
        if name in said:
            yield said[name]


def test_a_killed_client_is_forgotten(unharmed: Serving) -> None:
    before = unharmed.metric("headrace_disconnects_total")
    clients = [subprocess.Popen([sys.executable, "-c", DEAD_CLIENT, unharmed.url]) for _ in range(2)]
    try:
        wait_until(
            lambda: [session["writes"] > 1_000 for session in unharmed.sessions()] == [True, True],
            "writes of both clients",
        )
    finally:
        for client in clients:
            client.kill()
            client.wait()
    wait_until(lambda: not unharmed.sessions(), "the end of their sessions")
    assert unharmed.metric("headrace_disconnects_total") == before + 2
    assert unharmed.metric("headrace_active_flight_clients") == 0
