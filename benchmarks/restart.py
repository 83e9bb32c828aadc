"""How long a server with a large backlog takes to start, and to compare what is in object storage.

    python -m benchmarks.restart [--mib 1024]

Nothing is committed meanwhile, as when the catalog is away: all segments are on the disk and in object
storage when the server is started again. A write that comes then is uploaded after them.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from devtools.s3_server import S3Server
from headrace.client import connect
from headrace.ingest.access import Access
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import EngineSettings, LogLimits
from headrace.ingest.server import IngestServer, Listen
from headrace.model.tiers import Tier

MIB = 1 << 20
SEGMENT_BYTES = 36 * MIB
NEVER = 1e6
WAIT_SECONDS = 600.0


@contextmanager
def serving(settings: EngineSettings) -> Iterator[IngestServer]:
    server = IngestServer(Engine(settings), Listen(port=0), Access())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def write(url: str, mib: int, tier: Tier) -> None:
    with connect(url) as client, client.writer("orders") as writer:
        for _ in range(mib):
            writer.write(pa.record_batch({"bytes": [os.urandom(MIB)]}))
        writer.flush(tier, WAIT_SECONDS)


def measure(folder: Path, mib: int, **store: Any) -> list[str]:
    limits = LogLimits(segment_bytes=SEGMENT_BYTES, segment_seconds=1.0)
    settings = EngineSettings(folder, commit_interval=NEVER, log=limits, **store)
    with serving(settings) as server:
        write(server.url, mib, Tier.OBJECT_STORAGE)
        segments = len(server.engine.log_parts())
    began = time.monotonic()
    with serving(settings) as server:
        listening = time.monotonic() - began
        with connect(server.url) as client:
            while client.health()["status"] != "ok":
                time.sleep(0.01)
            healthy = time.monotonic() - began
        write(server.url, 1, Tier.OBJECT_STORAGE)
        through = time.monotonic() - began
    return [str(segments), f"{listening:.1f}", f"{healthy:.1f}", f"{through:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="how much log there is")
    mib = parser.parse_args().mib
    table = Table("store", "segments", "listens, s", "healthy, s", "a new write is uploaded, s")
    with tempfile.TemporaryDirectory() as folder, S3Server() as s3:
        table.add_row("folder on the log's disk", *measure(Path(folder) / "linked", mib))
        s3.create_bucket("restart")
        found = measure(
            Path(folder) / "s3", mib, store_url="s3://restart/log", store_options=s3.obstore_options()
        )
        table.add_row("S3 server", *found)
    Console().print(table)


if __name__ == "__main__":
    main()
