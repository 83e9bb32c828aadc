"""A server that was frozen, replaced by another on the same store, and wakes up."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

import headrace
from devtools.s3_server import S3Server
from headrace.certify.ingest.journal import Journal
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import Loader, ProducerLoader, StockLoader
from headrace.errors import HeadraceError
from headrace.model.tiers import Tier
from headrace.testing.freezing import freeze
from headrace.testing.ingest_process import IngestProcess
from tests.client.proxy import Proxy
from tests.crash.ingest.committers import committers_of
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

# What it finds first: that somebody else owns the log, or somebody else's segment under the next number.
REFUSAL = re.compile("another server took over|already has another segment|is ahead of this log")


@contextmanager
def relay(server: IngestProcess) -> Iterator[Proxy]:
    """An address that can be moved from one server to another."""
    proxy = Proxy(server.port)
    yield proxy
    proxy.close()


@pytest.mark.parametrize(
    "seed", [0, pytest.param(1, marks=pytest.mark.full), pytest.param(2, marks=pytest.mark.full)]
)
def test_a_zombie_acknowledges_nothing_that_is_not_so(
    folders: Surroundings, journal: Journal, seed: int
) -> None:
    draw = random.Random(seed)
    with folders.server("zombie") as zombie, relay(zombie) as proxy:
        url = f"grpc://127.0.0.1:{proxy.port}"
        producer = ProducerLoader("producer", url, "events", journal, retain=Tier.OBJECT_STORAGE)
        moving = StockLoader("moving", url, "events", journal)
        # Two stay with the zombie: one whose stream is open all the time, and one that comes when it wakes.
        staying = StockLoader("staying", zombie.url, "events", journal)
        late = StockLoader("late", zombie.url, "events", journal)
        for writer in (producer, moving, staying):
            writer.start()
        journal.await_news(Tier.COMMITTED, draw.randint(1, 200))
        time.sleep(draw.random() * 0.3)
        zombie.freeze()
        with folders.server("successor") as successor:
            proxy.target = successor.port
            proxy.cut()
            journal.await_news(Tier.COMMITTED, 300)
            before = journal.so_far()
            zombie.resume()
            late.start()
            await_refusal(zombie)
            journal.await_news(Tier.COMMITTED, 300)
            for writer in (staying, late):
                await_refused(writer)
            for writer in (producer, moving):
                writer.finish()
            folders.check(journal, successor, Tier.OBJECT_STORAGE)
            news = [write for name, write in journal.so_far().items() if name not in before]
            told = [
                write
                for write in news
                if write.name.startswith(("staying", "late"))
                and max(write.told, default=0) >= Tier.OBJECT_STORAGE
            ]
            assert not told, f"told by the zombie, of writes that only it has: {told[:3]}"
            assert_refuses_to_start(zombie)


@pytest.mark.full
def test_a_zombie_whose_successor_has_done_nothing_yet(folders: Surroundings, journal: Journal) -> None:
    """Nothing but the successor's term is in the way of the zombie's next segment."""
    with folders.server("zombie") as zombie:
        staying = StockLoader("staying", zombie.url, "events", journal)
        staying.start()
        journal.await_news(Tier.COMMITTED, 100)
        zombie.freeze()
        with folders.server("successor") as successor:
            zombie.resume()
            await_refused(staying)
            await_refusal(zombie)
            producer = ProducerLoader("producer", successor.url, "events", journal)
            producer.start()
            journal.await_news(Tier.COMMITTED, 100)
            producer.finish()
            folders.check(journal, successor, Tier.OBJECT_STORAGE)


def await_refusal(server: IngestProcess) -> None:
    """Until the server takes nothing more, and says why."""
    with headrace.connect(server.url) as client:
        wait_until(lambda: client.health()["status"] == "refusing", "a zombie that refuses")
        assert REFUSAL.search(client.health()["problems"][0])


def await_refused(writer: StockLoader) -> None:
    """Until every stream that it opens is refused."""
    wait_until(
        lambda: any(REFUSAL.search(str(error)) for error in list(writer.errors)),
        f"the refusal of {writer.name}",
    )
    finish(writer)


def finish(writer: Loader) -> None:
    writer.stop()
    writer.join(DEADLINE_SECONDS)
    assert not writer.is_alive()


def assert_refuses_to_start(server: IngestProcess) -> None:
    server.kill()
    with pytest.raises(HeadraceError, match="another server took over"):
        server.start()
    assert server.process.wait() == 1


@pytest.mark.full
def test_a_zombie_that_cannot_reach_the_store(
    folders: Surroundings, s3_server: S3Server, s3_bucket: str, journal: Journal
) -> None:
    """It sees its successor's commits in the tables, and must not take them for its own."""

    def with_store(endpoint: str) -> Surroundings:
        options = {**s3_server.obstore_options(), "endpoint": endpoint}
        return replace(folders, store={"url": f"s3://{s3_bucket}/log", "options": options})

    way = Proxy(s3_server.port)
    with with_store(f"http://127.0.0.1:{way.port}").server("zombie") as zombie:
        staying = StockLoader("staying", zombie.url, "events", journal)
        staying.start()
        journal.await_news(Tier.COMMITTED, 100)
        (committer,) = committers_of(zombie)
        freeze(committer.pid)
        journal.await_news(Tier.OBJECT_STORAGE, 100)  # so that it has something to commit when it wakes
        zombie.freeze()
        way.close()
        committer.kill()
        with with_store(s3_server.endpoint).server("successor") as successor:
            producer = ProducerLoader("producer", successor.url, "events", journal)
            producer.start()
            journal.await_news(Tier.COMMITTED, 300)
            zombie.resume()
            await_refusal(zombie)
            await_refused(staying)
            producer.finish()
            folders.check(journal, successor, Tier.OBJECT_STORAGE)
