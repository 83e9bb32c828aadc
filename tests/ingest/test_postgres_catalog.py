"""A catalog in a real PostgreSQL, as docs/configuration.md shows it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pyiceberg.catalog import load_catalog

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.tiers import Tier
from tests.ingest.flight_client import Stream
from tests.ingest.support import running_server
from tests.waiting import DEADLINE_SECONDS


def test_collections_are_committed_and_found_again(tmp_path: Path, postgres_url: str) -> None:
    properties = {
        "type": "sql",
        "uri": postgres_url.replace("postgresql://", "postgresql+psycopg2://"),
        "warehouse": (tmp_path / "warehouse").as_uri(),
    }
    catalog = CatalogSettings(properties=properties)
    for begin in (0, 10):  # the second time the tables are there
        with running_server(tmp_path / "data", catalog=catalog) as server:

            def write(collection: str, begin: int = begin, url: str = server.url) -> None:
                with Stream(url, collection) as stream:
                    for number in range(begin, begin + 10):
                        stream.send_ids(number)
                    stream.await_count("COMMITTED", 10)

            with ThreadPoolExecutor() as pool:
                list(pool.map(write, ("orders", "returns")))
            server.engine.flush(Tier.COMMITTED, DEADLINE_SECONDS)
    tables = load_catalog("headrace", **properties)
    for name in ("orders", "returns"):
        rows = tables.load_table(("headrace", name)).scan().to_arrow()
        assert sorted(rows["id"].to_pylist()) == list(range(20))
