"""The server's disk is lost under load, again and again; the object store and the tables are not."""

from __future__ import annotations

import random
import shutil
import time

import pytest

from headrace.certify.ingest.journal import Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import ProducerLoader, StockLoader
from headrace.errors import WriteLost
from headrace.model.tiers import Tier

pytestmark = pytest.mark.processes


@pytest.mark.parametrize(
    ("surroundings", "losses"),
    [
        ("folders", 2),
        pytest.param("folders", 5, marks=pytest.mark.full),
        pytest.param("s3_and_rest", 5, marks=pytest.mark.full),
    ],
    indirect=["surroundings"],
)
def test_the_data_folder_is_deleted(surroundings: Surroundings, journal: Journal, losses: int) -> None:
    draw = random.Random(7)
    with surroundings.server() as server:
        # One client keeps its data until it is safe from this, one trusts the disk, and one knows nothing.
        careful = ProducerLoader("careful", server.url, "events", journal, retain=Tier.OBJECT_STORAGE)
        trusting = ProducerLoader("trusting", server.url, "others", journal, retain=Tier.LOCAL_DISK)
        writers = [careful, trusting, StockLoader("stock", server.url, "events", journal)]
        for writer in writers:
            writer.start()
        for _ in range(losses):
            tier = draw.choice([Tier.LOCAL_DISK, Tier.OBJECT_STORAGE, Tier.COMMITTED])
            journal.await_news(tier, draw.randint(50, 300), is_over=lambda: not server.is_running)
            time.sleep(draw.random() * 0.1)
            server.kill()
            shutil.rmtree(server.data)
            server.start()
        for writer in writers:
            writer.finish()
        surroundings.check(journal, server, Tier.OBJECT_STORAGE)
    lost = [write for write in journal.writes.values() if isinstance(write.error, WriteLost)]
    assert not [write for write in lost if write.name.startswith("careful")]


@pytest.mark.full
def test_killed_between_the_losses(folders: Surroundings, journal: Journal) -> None:
    """What a process left undone is still undone when the disk is lost, and must not be in the way."""
    draw = random.Random(8)
    with folders.server() as server:
        writers = [
            ProducerLoader("careful", server.url, "events", journal, retain=Tier.OBJECT_STORAGE),
            StockLoader("stock", server.url, "events", journal),
        ]
        for writer in writers:
            writer.start()
        for _ in range(3):
            for _ in range(4):
                journal.await_news(
                    Tier.COMMITTED, draw.randint(1, 200), is_over=lambda: not server.is_running
                )
                time.sleep(draw.random() * 0.05)
                server.kill()
                server.start()
            server.kill()
            shutil.rmtree(server.data)
            server.start()
        for writer in writers:
            writer.finish()
        folders.check(journal, server, Tier.OBJECT_STORAGE)
