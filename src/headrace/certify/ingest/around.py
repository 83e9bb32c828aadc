"""Scenarios of what is around a server: its disk, and who calls it."""

from __future__ import annotations

import time

from headrace.certify.ingest import disk, hostile
from headrace.certify.ingest.journal import Broken
from headrace.certify.ingest.stage import COLLECTION, Stage
from headrace.certify.ingest.writers import StockLoader
from headrace.client import connect
from headrace.model.tiers import Tier
from headrace.testing.ingest_process import IngestProcess

_DRAIN_SECONDS = 60.0
_LOOK_EVERY = 0.05


def disk_heals(stage: Stage) -> None:
    """It is full when the server starts, too, which then brings what it has into the tables."""
    with stage.serving(load=disk.MODULE) as server:
        stage.write(server.url, retain=Tier.LOCAL_DISK)
        disk.fill(stage.faults)
        stage.await_refusal(server, lambda: None)
        stage.kill(server)
        server.start()
        _await_drained(server)
        stage.surroundings.check_committed(stage.journal)
        disk.empty(stage.faults)
        stage.journal.await_news(Tier.LOCAL_DISK, 20, is_over=lambda: not server.is_running)
        stage.finish(server)


def hostile_caller(stage: Stage) -> None:
    with stage.serving() as server:
        stage.write(server.url)
        for what, act in hostile.acts(COLLECTION).items():
            hostile.refused(server.url, what, act)
            if not server.is_running:
                raise Broken(f"a server is ended by {what}")
            stage.journal.await_news(Tier.COMMITTED, 5, is_over=lambda: not server.is_running)
        cut_off = [one.name for one in stage.writers if isinstance(one, StockLoader) and one.errors]
        if cut_off:
            raise Broken(f"streams of others were ended: {', '.join(cut_off)}")
        stage.finish(server)


def _await_drained(server: IngestProcess) -> None:
    deadline = time.monotonic() + _DRAIN_SECONDS
    with connect(server.url) as client:
        while any(client.health()["backlogs"][task] for task in ("uploader", "commits")):
            if time.monotonic() > deadline:
                raise Broken("a server on a full disk does not commit what it has")
            time.sleep(_LOOK_EVERY)
