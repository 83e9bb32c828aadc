"""An Iceberg table whose files are in object storage."""

from __future__ import annotations

import threading
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import load_catalog
from pyspark.sql import SparkSession

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.s3_server import S3Server
from headrace.errors import EndpointError
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.model.ownership import Mode, Owner
from headrace.sinks.iceberg import IcebergSink
from headrace.sinks.iceberg_tables import JavaTable, State
from headrace.sinks.ownership import MARK
from tests.sinks import test_iceberg_views as views
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.iceberg_world import World, make_known, persistently
from tests.sinks.together import run_together
from tests.waiting import DEADLINE_SECONDS


@pytest.fixture(params=["sql", "rest"])
def world(request: pytest.FixtureRequest, spark: SparkSession, s3_server: S3Server, tmp_path: Path) -> World:
    """A catalog in a SQLite file, and a REST catalog, which checks less: that main is where it was."""
    if request.param == "rest":
        catalog: IcebergRestCatalog = request.getfixturevalue("rest_catalog")
        properties = catalog.iceberg_properties()
    else:
        bucket: str = request.getfixturevalue("s3_bucket")
        properties = {
            **embedded_catalog(tmp_path).properties,
            "warehouse": f"s3://{bucket}/warehouse",
            **s3_server.iceberg_properties(),
        }
    name = f"s3_{uuid4().hex}"
    known = make_known(spark, CatalogSettings(name=name, properties=properties))
    return World(spark, known, load_catalog(name, **properties))


@pytest.mark.parametrize("world", ["sql", pytest.param("rest", marks=pytest.mark.full)], indirect=True)
def test_rows_are_appended(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0)))
    never = world.sink().prepare(an_epoch(1), rows(1))
    handle = world.sink().prepare(an_epoch(1), rows(1))
    world.sink().start(1, handle, 2)
    assert world.table.snapshot_by_id(never["snapshot_id"]) is None
    rows(9, 1).writeTo(world.sql_name).append()
    world.sink().commit(1, handle)
    assert world.values() == [0, 1, 2, 10, 11, 12, 90]
    assert list(IcebergSink.audit(world.place(), {0: 3, 1: 3})) == []


@pytest.mark.full
def test_a_view_is_merged_published_compacted_and_rewound(world: World) -> None:
    for epoch in range(5):
        world.publish(epoch, k1=epoch, **{f"k{epoch + 2}": epoch})
    handle = world.view().prepare(an_epoch(5), world.rows(k1=50))
    said = list(world.view().maintain(timedelta(hours=1), handle))
    assert "5 data files became 1" in said
    world.view().commit(5, handle)
    assert world.state() == [(1, 50), (2, 0), (3, 1), (4, 2), (5, 3), (6, 4)]
    world.view().rewind(1)
    assert world.state() == [(1, 1), (2, 0), (3, 1)]
    assert world.view().committed() == {"offsets": 1}


@pytest.mark.parametrize("world", [pytest.param("sql", marks=pytest.mark.full), "rest"], indirect=True)
def test_some_who_commit_at_once(world: World) -> None:
    world.publish(0, k1=10)
    handle = world.view().prepare(an_epoch(1), world.rows(k1=11, k2=21))
    world.append_by_hand(k7=77)
    run_together([lambda: persistently(lambda: world.view().commit(1, handle))] * 3)
    assert world.state() == [(1, 11), (2, 21), (7, 77)]


@pytest.mark.parametrize("world", [pytest.param("sql", marks=pytest.mark.full), "rest"], indirect=True)
def test_of_two_who_claim_a_table_at_once_one_is_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both have seen that it is nobody's. A REST catalog would take the properties of either."""
    world.sink().commit(0, world.sink().prepare(an_epoch(0), world.rows(k1=10)))  # of an older version
    both_have_looked = threading.Barrier(2, timeout=DEADLINE_SECONDS)
    swap = JavaTable.swap

    def swap_together(table: JavaTable, state: State, *given: Any, **more: Any) -> bool:
        if state.told(MARK) is None:
            both_have_looked.wait()
        return swap(table, state, *given, **more)

    owners = [Owner(name, "lineage", ("id",), Mode.APPEND) for name in ("one", "two")]
    sinks = {owner.materialization: world.sink(owner.materialization) for owner in owners}
    for sink in sinks.values():
        sink.start(None, None, 1)
    refused: list[str] = []

    def claim(owner: Owner) -> None:
        try:
            sinks[owner.materialization].claim(owner)
        except EndpointError:
            refused.append(owner.materialization)

    monkeypatch.setattr(JavaTable, "swap", swap_together)
    run_together([partial(claim, owner) for owner in owners])
    monkeypatch.undo()
    assert len(refused) == 1
    (loser,) = refused
    winner = "one" if loser == "two" else "two"
    found = world.sink().inspect().owner
    assert found is not None
    assert found.materialization == winner
    sinks[winner].commit(0, sinks[winner].prepare(an_epoch(0), world.rows(k2=20)))
    with pytest.raises(EndpointError, match=f"is written by materialization '{winner}'"):
        sinks[loser].prepare(an_epoch(0), world.rows(k2=20))
    assert world.values() == [10, 20]


@pytest.mark.parametrize("world", [pytest.param("sql", marks=pytest.mark.full), "rest"], indirect=True)
def test_a_late_claim_is_refused_when_its_table_has_an_owner(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the owner has prepared by then is committed."""
    world.sink().commit(0, world.sink().prepare(an_epoch(0), world.rows(k1=10)))  # of an older version
    first, second = world.sink("one"), world.sink("two")
    first.start(None, None, 1)
    second.start(None, None, 1)
    swap = JavaTable.swap
    handles = []

    def overtaken(table: JavaTable, state: State, *given: Any, **more: Any) -> bool:
        monkeypatch.undo()
        first.claim(Owner("one", "lineage", ("id",), Mode.APPEND))
        handles.append(first.prepare(an_epoch(0), world.rows(k2=20)))
        return swap(table, state, *given, **more)

    monkeypatch.setattr(JavaTable, "swap", overtaken)
    with pytest.raises(EndpointError, match="is written by materialization 'one'"):
        second.claim(Owner("two", "lineage", ("id",), Mode.APPEND))
    first.commit(0, *handles)
    assert world.values() == [10, 20]
    staged = {str(one.summary["headrace.id"]) for one in world.table.snapshots() if one.summary}
    assert len([name for name in staged if name.startswith("owner-")]) == 1  # the winner's


@pytest.mark.full
def test_who_was_stopped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    views.test_who_was_stopped_in_a_commit_does_not_bring_back_what_was_rewound(world, monkeypatch)
