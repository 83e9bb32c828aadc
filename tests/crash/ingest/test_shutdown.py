"""SIGTERM under load: what was accepted is on the disk when the server says so."""

from __future__ import annotations

import re

import pytest

from headrace.certify.ingest.journal import Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.model.tiers import Tier
from headrace.testing.freezing import freeze
from tests.crash.ingest.committers import committers_of

pytestmark = [pytest.mark.processes, pytest.mark.full]

STOPPED = re.compile(r"stopped: everything up to LSN (\d+) is on the disk")


def test_terminated_under_load(folders: Surroundings, journal: Journal) -> None:
    with folders.server() as server:
        writers: list[Loader] = [
            ProducerLoader("producer", server.url, "events", journal),
            StockLoader("stock", server.url, "events", journal, pause=0.0005),
            StockLoader("stranger", server.url, "others", journal, pause=0.0005),
        ]
        for writer in writers:
            writer.start()
        for tier in (Tier.MEMORY, Tier.COMMITTED, Tier.LOCAL_DISK):
            journal.await_news(tier, 200)
            assert server.terminate() == 0, server.log_tail()
            said = STOPPED.search(server.output())
            assert said, server.log_tail()
            assert int(said[1]) >= max(journal.given)
            server.start()
        for writer in writers:
            writer.finish()
        # Nothing died with a process: what was told to be in memory only is there as well.
        folders.check(journal, server, Tier.MEMORY)


def test_terminated_while_the_committer_hangs(folders: Surroundings, journal: Journal) -> None:
    with folders.server() as server:
        writer = ProducerLoader("producer", server.url, "events", journal)
        writer.start()
        journal.await_news(Tier.COMMITTED)
        (committer,) = committers_of(server)
        freeze(committer.pid)
        journal.await_news(Tier.OBJECT_STORAGE, 100)
        assert server.terminate() == 0, server.log_tail()
        assert not committer.is_running()
        server.start()
        writer.finish()
        folders.check(journal, server, Tier.LOCAL_DISK)
