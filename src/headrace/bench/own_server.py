"""A server for the bench to write to, as `headrace serve` starts it with its defaults, or without commits.

Run as a child of the bench: `python -m headrace.bench.own_server`.
"""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from threading import Event

from headrace.bench.tether import Tether
from headrace.client import connect
from headrace.ingest.access import Access
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.server import IngestServer, Listen
from headrace.model.tiers import Tier

_WARM_UP_SECONDS = 120.0
_NEVER_SECONDS = 1e9
_UNLIMITED = 1 << 60


def main() -> None:
    ended = Event()
    tether = Tether(on_end=ended.set)
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    command = tether.receive()
    data = Path(command["data"])
    try:
        settings = EngineSettings(data) if command["commits"] else _without_commits(data)
        server = IngestServer(settings, Listen(port=0), Access())
        server.start()
        _warm_up(server)
        tether.send(url=server.url)
        ended.wait()
        server.stop()
    finally:
        # Here too: a bench that was killed with kill -9 cannot do it.
        shutil.rmtree(data, ignore_errors=True)


def _without_commits(data: Path) -> EngineSettings:
    """Only the size of the disk limits what can be written, because nothing is released from the log."""
    return EngineSettings(data, commit_interval=_NEVER_SECONDS, most_log_bytes=_UNLIMITED)


def _warm_up(server: IngestServer) -> None:
    """Until the committer has committed: its start takes seconds of a processor, which no run is to share."""
    with connect(server.url) as client, client.writer("warm_up") as writer:
        writer.write_durable({"id": 0})
    server.engine.flush(Tier.COMMITTED, _WARM_UP_SECONDS)


if __name__ == "__main__":
    main()
