"""The current code opens data folders and buckets of each format version, resumes, and loses nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.config import load_config
from headrace.ingest.access import Access
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.iceberg.tables import Tables
from headrace.ingest.server import IngestServer, Listen
from headrace.model.tiers import Tier
from tests.formats.archives import VERSIONS, unpacked
from tests.formats.flights import (
    Write,
    act,
    expected,
    flush,
    in_order,
    last_seq,
    plain,
    read,
    send,
    tiers,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.processes
each_version = pytest.mark.parametrize("version", VERSIONS)
LOST = "LOST"


@each_version
def test_a_whole_data_folder(version: str) -> None:
    with unpacked(version, "ingest-whole") as place:
        description = _description(place)
        writes = description["writes"]
        with _served(place) as (url, catalog):
            lost = description["lost"]
            assert [*map(list, act(url, "watermarks")["lost"])][: len(lost)] == lost != []
            wait_until(lambda: _are_at_least(url, writes), "the tiers that each write had reached")
            _assert_known(url, writes)
            _assert_exact(url, writes)
            writes = writes + _resume(url, writes)
            _assert_exact(url, writes)
            flush(url, "COMMITTED")
            _assert_exact(url, writes)
            _assert_committed(catalog, writes)
        with _served(place) as (url, _):
            _assert_known(url, writes)
            _assert_exact(url, writes)


@each_version
def test_a_torn_tail(version: str) -> None:
    with unpacked(version, "ingest-torn") as place:
        description = _description(place)
        writes, torn = description["writes"], description["torn"]
        with _served(place) as (url, catalog):
            wait_until(lambda: _are_at_least(url, writes), "the tiers that each write had reached")
            found = tiers(url, torn)
            kept = [write for write in torn if found[write["lsn"]] != LOST]
            assert torn[-1] not in kept
            _assert_known(url, [*writes, *kept])
            _assert_exact(url, [*writes, *kept])
            # None of them was acknowledged, so the producer sends all of them again.
            again = _send(url, torn)
            _assert_same(url, again[: len(kept)], kept)
            again = again[len(kept) :]
            assert again[0]["lsn"] > torn[-1]["lsn"]
            writes = [*writes, *kept, *again]
            flush(url, "COMMITTED")
            _assert_exact(url, writes)
            _assert_committed(catalog, writes)


@pytest.mark.parametrize(
    "version", [pytest.param(VERSIONS[0], marks=pytest.mark.full), *VERSIONS[1:]], ids=VERSIONS
)
def test_a_large_state(version: str) -> None:
    with unpacked(version, "ingest-large-state") as place:
        writes = _description(place)["writes"]
        collections = {write["collection"] for write in writes}
        some = [write for write in writes if write["producer"]][::100]
        with _served(place) as (url, catalog):
            listed = {one["name"]: one for one in act(url, "list_collections")["collections"]}
            assert collections <= listed.keys()
            for write in writes:
                names = {field["name"] for field in listed[write["collection"]]["fields"]}
                assert write["rows"][0].keys() <= names
            assert listed["customers"]["key"] == ["/id"]
            _assert_known(url, some)
            for write in some:
                assert [one["lsn"] for one in _send(url, [write])] == [write["lsn"]]
            more = send(url, "orders", [(pa.RecordBatch.from_pylist([{"id": 1_000_000}]), [1])], "", 0)
            flush(url, "COMMITTED")
            _assert_committed(catalog, [*writes, *more])
        with _served(place) as (url, _):
            assert {one["name"] for one in act(url, "list_collections")["collections"]} == listed.keys()
            _assert_known(url, some)
            _assert_exact(url, [*writes, *more], {"orders", "customers", "collection_7"})


@each_version
def test_a_bucket_whose_servers_disk_is_lost(version: str) -> None:
    with unpacked(version, "ingest-lost-disk") as place:
        description = _description(place)
        kept = [write for write in description["writes"] if Tier[write["tier"]] >= Tier.OBJECT_STORAGE]
        gone = [write for write in description["writes"] if write not in kept]
        with _served(place) as (url, catalog):
            assert set(tiers(url, gone).values()) == {LOST}
            wait_until(lambda: _are_at_least(url, kept), "the tiers that each write had reached")
            _assert_known(url, kept)
            _assert_exact(url, kept)
            again = _send(url, [write for write in gone if write["producer"]])
            assert min(write["lsn"] for write in again) > max(write["lsn"] for write in description["writes"])
            writes = [*kept, *again]
            _assert_known(url, writes)
            flush(url, "COMMITTED")
            _assert_exact(url, writes)
            _assert_committed(catalog, writes)


def _description(place: Path) -> dict[str, Any]:
    description: dict[str, Any] = json.loads((place / "fixture.json").read_text())
    return description


@contextmanager
def _served(place: Path) -> Iterator[tuple[str, CatalogSettings]]:
    """Serves the fixture with the current code and the fixture's own configuration."""
    config = load_config(place / "headrace.yaml")
    server = IngestServer(config.engine_settings(), Listen(port=0), Access())
    try:
        server.start()
        yield server.url, config.catalog_settings()
    finally:
        assert server.stop()


def _are_at_least(url: str, writes: list[Write]) -> bool:
    found = tiers(url, writes)
    return all(Tier[found[write["lsn"]]] >= Tier[write["tier"]] for write in writes)


def _assert_known(url: str, writes: list[Write]) -> None:
    """Checks that each producer learns which of its writes was the last."""
    last = {(write["collection"], write["producer"]): write["seq"] for write in writes if write["producer"]}
    assert last
    assert {name: last_seq(url, *name) for name in last} == last


def _assert_exact(url: str, writes: list[Write], collections: set[str] | None = None) -> None:
    for collection in collections or {write["collection"] for write in writes}:
        assert read(url, collection) == expected(writes, collection)


def _assert_committed(catalog: CatalogSettings, writes: list[Write]) -> None:
    """Reads the tables as another program would."""
    tables = Tables(catalog)
    for collection in sorted({write["collection"] for write in writes}):
        table = tables.load(collection)
        assert table is not None
        found = ((row.pop("_lsn"), row.pop("_row"), row) for row in plain(table.scan().to_arrow()))
        assert in_order(found) == expected(writes, collection)


def _resume(url: str, writes: list[Write]) -> list[Write]:
    """Resends known writes, which keep their LSNs, and sends new ones; returns the new ones."""
    till = [write for write in writes if write["producer"] == "till"]
    unsettled = [write for write in till if write["tier"] != "COMMITTED"]
    new = [{**till[-1], "seq": till[-1]["seq"] + 1}, {**till[-1], "seq": till[-1]["seq"] + 2}]
    sent = _send(url, [*unsettled, *new])
    _assert_same(url, sent[:-2], unsettled)
    assert sent[-2]["lsn"] > max(write["lsn"] for write in writes)
    return sent[-2:]


def _assert_same(url: str, sent: list[Write], before: list[Write]) -> None:
    """Asserts that writes kept their LSNs; the server may forget an LSN once it is committed."""
    found = tiers(url, before)
    for write, known in zip(sent, before, strict=True):
        forgotten = [0] if found[known["lsn"]] == "COMMITTED" else []
        assert write["lsn"] in [known["lsn"], *forgotten]


def _send(url: str, writes: list[Write]) -> list[Write]:
    """Sends consecutive writes of one producer, one in each message."""
    first = writes[0]
    assert [write["seq"] for write in writes] == list(range(first["seq"], first["seq"] + len(writes)))
    messages = [(pa.RecordBatch.from_pylist(write["rows"]), [len(write["rows"])]) for write in writes]
    return send(url, first["collection"], messages, first["producer"], first["seq"])
