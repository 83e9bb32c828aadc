"""The S3 server and the REST catalog go away under load, and come back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.java_server import JavaServer
from devtools.s3_server import S3Server
from headrace.certify.ingest.journal import Journal, Write
from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.ingest.writers import ProducerLoader, StockLoader
from headrace.model.tiers import Tier


@contextmanager
def down(server: JavaServer) -> Iterator[None]:
    """Other tests need it as well."""
    server.stop()
    try:
        yield
    finally:
        server.start()


def written_during(outage: JavaServer, reaches: Tier, journal: Journal) -> list[Write]:
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


def assert_survives(outage: JavaServer, reaches: Tier, surroundings: Surroundings, journal: Journal) -> None:
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


def test_object_storage_is_down(s3_server: S3Server, s3_and_rest: Surroundings, journal: Journal) -> None:
    assert_survives(s3_server, Tier.LOCAL_DISK, s3_and_rest, journal)


def test_the_catalog_is_down(
    rest_catalog: IcebergRestCatalog, s3_and_rest: Surroundings, journal: Journal
) -> None:
    assert_survives(rest_catalog, Tier.OBJECT_STORAGE, s3_and_rest, journal)


def test_killed_while_object_storage_is_down(
    s3_server: S3Server, s3_and_rest: Surroundings, journal: Journal
) -> None:
    """A server starts on its own disk, and takes writes, without its store."""
    with s3_and_rest.server() as server:
        writer = ProducerLoader("producer", server.url, "events", journal)
        writer.start()
        journal.await_news(Tier.COMMITTED)
        with down(s3_server):
            journal.await_news(Tier.LOCAL_DISK, 100)
            server.kill()
            server.start()
            journal.await_news(Tier.LOCAL_DISK, 100)
        writer.finish()
        s3_and_rest.check(journal, server, Tier.LOCAL_DISK)
