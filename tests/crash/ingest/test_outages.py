"""The S3 server and the REST catalog become unreachable under load, and come back.

The servers are shared with other tests, so only the connections to them are cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.s3_server import S3Server
from headrace.certify.ingest.journal import Journal, Write
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import ProducerLoader, StockLoader
from headrace.model.tiers import Tier
from tests.client.proxy import Proxy

pytestmark = pytest.mark.processes

# A port that nothing listens on.
NOBODY = 1


@dataclass
class Ways:
    """Relays to both servers, and the surroundings of a server that uses them."""

    to_store: Proxy
    to_catalog: Proxy
    surroundings: Surroundings


@pytest.fixture
def ways(s3_server: S3Server, rest_catalog: IcebergRestCatalog, s3_and_rest: Surroundings) -> Iterator[Ways]:
    to_store, to_catalog = Proxy(s3_server.port), Proxy(rest_catalog.port)
    endpoint = f"http://127.0.0.1:{to_store.port}"
    store = {**s3_and_rest.store, "options": {**s3_and_rest.store["options"], "endpoint": endpoint}}
    catalog = {
        **s3_and_rest.catalog_properties,
        "uri": f"http://127.0.0.1:{to_catalog.port}",
        "s3.endpoint": endpoint,
    }
    yield Ways(to_store, to_catalog, replace(s3_and_rest, store=store, catalog_properties=catalog))
    to_store.close()
    to_catalog.close()


@contextmanager
def down(way: Proxy) -> Iterator[None]:
    """Breaks all connections and refuses new ones until the end of the block."""
    target, way.target = way.target, NOBODY
    way.cut()
    try:
        yield
    finally:
        way.target = target


def written_during(outage: Proxy, reaches: Tier, journal: Journal) -> list[Write]:
    """Writes that were accepted while a server was down, and that came no further than to a tier."""
    with down(outage):
        journal.await_news(reaches, 300)  # what was under way
        before = journal.so_far()
        for _ in range(10):  # the first of them may be of writes from before
            journal.await_news(reaches, 300)
            news = [write for name, write in journal.so_far().items() if name not in before and write.told]
            if any(reaches in write.told for write in news):
                break
        else:
            raise AssertionError(f"nothing that was written meanwhile has reached {reaches.name}")
        early = [write for write in news if max(write.told) > reaches]
        assert not early, f"told too early: {early[:3]}"
    return news


def assert_survives(outage: Proxy, reaches: Tier, surroundings: Surroundings, journal: Journal) -> None:
    with surroundings.server() as server:
        writers = [
            ProducerLoader("producer", server.url, "events", journal),
            StockLoader("stock", server.url, "events", journal),
        ]
        for writer in writers:
            writer.start()
        journal.await_news(Tier.COMMITTED)
        news = written_during(outage, reaches, journal)
        for writer in writers:
            writer.finish()
        assert not [write for write in news if Tier.COMMITTED not in write.told]
        surroundings.check(journal, server, Tier.LOCAL_DISK)


@pytest.mark.full
def test_object_storage_is_down(ways: Ways, journal: Journal) -> None:
    assert_survives(ways.to_store, Tier.LOCAL_DISK, ways.surroundings, journal)


@pytest.mark.full
def test_the_catalog_is_down(ways: Ways, journal: Journal) -> None:
    assert_survives(ways.to_catalog, Tier.OBJECT_STORAGE, ways.surroundings, journal)


def test_killed_while_object_storage_is_down(ways: Ways, journal: Journal) -> None:
    """A server starts on its own disk, and takes writes, without its store."""
    with ways.surroundings.server() as server:
        writer = ProducerLoader("producer", server.url, "events", journal)
        writer.start()
        journal.await_news(Tier.COMMITTED)
        with down(ways.to_store):
            journal.await_news(Tier.LOCAL_DISK, 100)
            server.kill()
            server.start()
            journal.await_news(Tier.LOCAL_DISK, 100)
        writer.finish()
        ways.surroundings.check(journal, server, Tier.LOCAL_DISK)
