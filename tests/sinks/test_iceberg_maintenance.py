"""Tables are kept fit beside pipelines that write to them, and are audited without Spark."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from headrace.sinks import iceberg_maintenance
from headrace.sinks.iceberg import IcebergSink
from headrace.sinks.iceberg_audit import audit_foreign
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.iceberg_world import World, catalog, settings, world
from tests.waiting import wait_until

__all__ = ["catalog", "settings", "world"]

AT_ONCE = timedelta(0)


def grow_old(world: World) -> None:
    """Returns when everything in the table is older than the current millisecond."""
    newest = max(snapshot.timestamp_ms for snapshot in world.table.snapshots())
    wait_until(lambda: time.time() * 1000 > newest + 1, "a clock that goes on")


@pytest.mark.full
def test_small_files_become_few_and_old_snapshots_go(world: World) -> None:
    for epoch in range(6):
        last = world.publish(epoch, k1=epoch, **{f"k{epoch + 2}": epoch})
    before, state = world.data_files(), world.state()
    said = list(world.view().maintain(AT_ONCE, None))
    assert "6 data files became 1" in said
    assert any("snapshots were expired" in sentence for sentence in said)
    assert world.data_files() < before
    assert world.state() == state
    assert world.view().undone(5, last) == ""
    world.publish(6, k1=6)
    assert world.state()[0] == (1, 6)


def test_what_is_staged_is_left_alone(world: World, rows: Rows) -> None:
    """A decided epoch is published afterwards, also one that is older than what is expired."""
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    decided = world.sink().prepare(an_epoch(1), rows(1, 1))
    rows(9, 1).writeTo(world.sql_name).append()
    grow_old(world)
    said = list(world.sink().maintain(AT_ONCE, decided))
    assert any("snapshots were expired" in sentence for sentence in said)
    world.sink().commit(1, decided)
    assert world.values() == [0, 10, 90]


@pytest.mark.full
def test_what_others_have_staged_is_left_alone_and_so_is_the_next_epoch(world: World, rows: Rows) -> None:
    """One waits for another sink, and the next one for that; only the pipeline knows of either."""
    ours, theirs = world.sink(), world.sink("other")
    ours.commit(0, ours.prepare(an_epoch(0), rows(0, 1)))
    waiting, after = (ours.prepare(an_epoch(epoch), rows(epoch, 1)) for epoch in (1, 2))
    decided = theirs.prepare(an_epoch(0), rows(7, 1))
    grow_old(world)
    list(world.sink().maintain(AT_ONCE, waiting))
    theirs.commit(0, decided)
    ours.commit(1, waiting)
    ours.commit(2, after)
    assert world.values() == [0, 10, 20, 70]
    assert world.table.snapshot_by_id(after["snapshot_id"]) is not None
    list(iceberg_maintenance._expire(world.sink()._load(), 2**62, None))
    assert world.table.snapshot_by_id(after["snapshot_id"]) is None  # it was published as another one
    assert world.values() == [0, 10, 20, 70]


@pytest.mark.full
def test_a_branch_of_a_view_is_left_alone(world: World) -> None:
    world.publish(0, k1=10)
    handle = world.view().prepare(an_epoch(1), world.rows(k1=11))
    list(world.view().maintain(AT_ONCE, None))
    world.view().commit(1, handle)
    assert world.state() == [(1, 11)]


@pytest.mark.full
def test_nothing_that_is_young_is_removed(world: World) -> None:
    for epoch in range(3):
        world.publish(epoch, k1=epoch)
    stray = Path(world.table.location().removeprefix("file://")) / "data" / "stray.parquet"
    stray.write_bytes(b"of a task that was given up, or is still at it")
    snapshots = len(world.table.snapshots())
    list(world.view().maintain(timedelta(hours=1), None))
    assert len(world.table.snapshots()) >= snapshots
    assert stray.exists()
    long_ago = time.time() - 7200
    os.utime(stray, (long_ago, long_ago))
    assert "1 files were removed that no snapshot has" in list(
        world.view().maintain(timedelta(hours=1), None)
    )
    assert not stray.exists()
    assert world.state() == [(1, 2)]


def test_nothing_to_maintain(world: World) -> None:
    assert list(world.view().maintain(AT_ONCE, None)) == []


@pytest.mark.full
def test_an_audit_finds_nothing_where_nothing_is_wrong(world: World, rows: Rows) -> None:
    for epoch in range(3):
        world.sink().commit(epoch, world.sink().prepare(an_epoch(epoch), rows(epoch)))
    assert list(IcebergSink.audit(world.place(), {0: 3, 1: 3, 2: 3})) == []
    world.sink().rewind(1)
    world.sink().commit(2, world.sink().prepare(an_epoch(2), rows(2, 1)))
    assert list(IcebergSink.audit(world.place(), {0: 3, 1: 3, 2: 1})) == []


def test_an_audit_finds_what_is_missing_or_there_twice(world: World, rows: Rows) -> None:
    for epoch in range(2):
        world.sink().commit(epoch, world.sink().prepare(an_epoch(epoch), rows(epoch)))
    decided = {0: 3, 1: 3, 2: 4}
    assert list(IcebergSink.audit(world.place(), decided)) == [
        "epoch 2 was committed with 4 rows, and 0 are there",
        "epoch 2 was committed, and the table says that epoch 1 is its last",
    ]
    path = add_twice(world)
    said = list(IcebergSink.audit(world.place(), {0: 3, 1: 3}))
    assert any(sentence.startswith("epoch 1 was committed with 3 rows, and ") for sentence in said)
    assert any(sentence.startswith(f"{path} was added by 2 snapshots") for sentence in said)
    assert any(sentence.startswith(f"{path} is in the table 2 times") for sentence in said)


def test_an_audit_of_a_view_goes_by_its_history(world: World) -> None:
    place = world.place("id")
    assert list(IcebergSink.audit(place, {})) == []
    for epoch in (0, 2):
        world.publish(epoch, k1=epoch)
    assert list(IcebergSink.audit(place, {0: 1, 1: 0, 2: 1})) == []
    assert list(IcebergSink.audit(place, {0: 1, 1: 5, 2: 7})) == [
        "epoch 1 was committed with 5 rows, and the history has no snapshot of it",
        "epoch 2 was committed with 7 rows, and its snapshot brought 1",
    ]
    list(world.view().maintain(AT_ONCE, None))  # what has expired proves nothing
    assert list(IcebergSink.audit(place, {0: 1, 1: 5, 2: 1})) == []
    world.view().commit(3, world.view().prepare(an_epoch(3), world.rows(k1=3)))
    world.append_by_hand(k2=4)
    assert list(IcebergSink.audit(place, {2: 1, 3: 1})) == []


@pytest.mark.full
def test_an_audit_of_a_view_that_somebody_rolled_back(world: World) -> None:
    for epoch in range(2):
        world.publish(epoch, k1=epoch)
    assert list(IcebergSink.audit(world.place("id"), {0: 1}, lambda: 1)) == []
    assert list(IcebergSink.audit(world.place("id"), {0: 1}, lambda: 0)) == [
        "the table says that epoch 1 is its last, which was never decided"
    ]
    first = world.table.snapshots()[0].snapshot_id
    world.view()._load().java.manageSnapshots().rollbackTo(first).commit()
    assert list(IcebergSink.audit(world.place("id"), {0: 1, 1: 1})) == [
        "epoch 0 was committed with 1 rows, and the history has no snapshot of it",
        "epoch 1 was committed with 1 rows, and the history has no snapshot of it",
    ]


@pytest.mark.full
def test_an_audit_of_a_view_that_has_a_key_twice(world: World) -> None:
    world.publish(0, k1=1, k2=2)
    world.append_by_hand(k1=5, k2=5, k3=3)
    assert list(IcebergSink.audit(world.place("id"), {0: 2})) == [
        f"2 keys have more than one row in {world.place().location}"
    ]


def test_an_audit_of_a_table_of_others(world: World) -> None:
    table = foreign_table(world)
    for epoch in (0, 1, 2):
        append(table, epoch)
    assert list(audit_foreign(table)) == []
    append(table, 5)
    append(table, 5)
    path = next(iter(table.scan().plan_files())).file.file_path
    table.add_files([path], check_duplicate_files=False)
    said = list(audit_foreign(table))
    assert said[:2] == [
        "epoch 5 of query was published 2 times",
        "the epochs of query go from 2 to 5: those between are missing",
    ]
    assert [sentence.startswith(path) for sentence in said[2:]] == [True, True]


def add_twice(world: World) -> str:
    """A file, once more, by somebody who does not look."""
    table = world.sink()._load()
    state = table.state()
    file = table.added_files(state.snapshot(state.main))[0]
    table.java.newAppend().appendFile(file).commit()
    location: str = file.location()
    return location


def foreign_table(world: World) -> Table:
    world.catalog.create_namespace_if_not_exists(world.identifier[0])
    return world.catalog.create_table(world.identifier, pa.schema([("id", pa.int64())]))


def append(table: Table, epoch: int) -> None:
    """As Spark's streaming writer labels it."""
    label = {"spark.sql.streaming.queryId": "query", "spark.sql.streaming.epochId": str(epoch)}
    table.append(pa.table({"id": [epoch]}), snapshot_properties=label)
