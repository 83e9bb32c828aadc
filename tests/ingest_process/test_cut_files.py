"""A file of the log is cut off under a server that reads it: that ends a read, and never the server."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.client import connect
from headrace.model.tiers import Tier
from headrace.wal.segments import segment_files
from tests.ingest_process.serving import Serving
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.processes

SEGMENT_BYTES = 1 << 20
WRITES = 40


def test_a_read_does_not_end_the_server(tmp_path: Path) -> None:
    config = {"ingest": {"segment_bytes": SEGMENT_BYTES, "segment_seconds": 3600, "commit_interval": 3600}}
    data = tmp_path / "data"
    with Serving(data, "--no-metrics", config=config) as server:
        with connect(server.url) as client, client.writer("orders") as writer:
            for number in range(WRITES):
                writer.write(pa.record_batch({"id": [number], "text": ["x" * SEGMENT_BYTES]}))
            writer.flush(Tier.LOCAL_DISK, DEADLINE_SECONDS)
        reading = flight.connect(server.url).do_get(flight.Ticket(b'{"collection": "orders"}'))
        reading.read_chunk()  # so much that the server waits for its reader
        for path in segment_files(data / "wal"):
            os.truncate(path, 0)
        with pytest.raises(flight.FlightError, match="had been synced"):
            reading.read_all()
        with connect(server.url) as client:
            assert client.health()["watermarks"]["LOCAL_DISK"] == WRITES
        assert server.process.poll() is None
