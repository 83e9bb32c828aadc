"""An epoch that somebody has taken out of an Iceberg table by its own means, which keep the properties."""

from __future__ import annotations

import pytest

from headrace.model.checkpoints import JsonObject
from headrace.sinks.iceberg import IcebergSink
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.iceberg_world import World, catalog, settings, world

__all__ = ["catalog", "settings", "world"]


def append(world: World, rows: Rows, *epochs: int, fence: int = 1) -> JsonObject:
    """Returns the handle of the last."""
    for epoch in epochs:
        sink = world.sink()
        handle = sink.prepare(an_epoch(epoch, fence), rows(epoch, 1))
        sink.commit(epoch, handle)
    return handle


def main(world: World) -> int:
    snapshot = world.table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def set_main(world: World, snapshot: int) -> None:
    """What `rollback_to_snapshot`, `rollback_to_timestamp` and `set_current_snapshot` do."""
    world.sink()._load().java.manageSnapshots().setCurrentSnapshot(snapshot).commit()


def assert_undone(sink: IcebergSink, epoch: int, handle: JsonObject, said: str) -> None:
    """Also by a handle of the version before, be what was staged still there or not."""
    before = {key: value for key, value in handle.items() if key != "sequence_number"}
    for told in (handle, before, {**before, "snapshot_id": 1}):
        assert sink.undone(epoch, told) == said


def test_a_table_that_was_rolled_back(world: World, rows: Rows) -> None:
    append(world, rows, 0)
    first = main(world)
    handle = append(world, rows, 1)
    second = main(world)
    assert_undone(world.sink(), 1, handle, "")
    named = f"`some space`.{world.identifier[1]}"
    world.spark.sql(f"CALL {world.settings.name}.system.rollback_to_snapshot('{named}', {first})")
    assert world.sink().committed() == {"offsets": 1}  # so says the table
    rolled_back = f"was rolled back to snapshot {first}, which is older than epoch 1"
    assert_undone(world.sink(), 1, handle, rolled_back)
    rows(7, 1).writeTo(world.sql_name).append()  # of somebody else, younger than the epoch
    assert_undone(world.sink(), 1, handle, rolled_back)
    set_main(world, second)
    assert_undone(world.sink(), 1, handle, "")


def test_a_table_that_has_another_branch_for_main(world: World, rows: Rows) -> None:
    append(world, rows, 0)
    first = main(world)
    handle = append(world, rows, 1)
    java = world.sink()._load().java
    java.manageSnapshots().createBranch("other", first).commit()
    java.newAppend().toBranch("other").commit()
    java.manageSnapshots().createBranch("later").commit()
    java.newAppend().toBranch("later").commit()
    java.manageSnapshots().fastForwardBranch("main", "later").commit()
    assert_undone(world.sink(), 1, handle, "")
    set_main(world, world.table.refs()["other"].snapshot_id)
    assert_undone(
        world.sink(), 1, handle, f"was rolled back to snapshot {first}, which is older than epoch 1"
    )


def test_what_is_done_to_a_table_day_by_day_takes_nothing_back(world: World, rows: Rows) -> None:
    append(world, rows, 0)
    waiting = world.sink().prepare(an_epoch(1), rows(1, 1))
    rows(7, 1).writeTo(world.sql_name).append()
    world.sink().commit(1, waiting)  # as another snapshot than it was staged as
    assert_undone(world.sink(), 1, waiting, "")
    world.spark.sql(f"DELETE FROM {world.sql_name} WHERE value = 10")
    assert_undone(world.sink(), 1, waiting, "")
    world.sink()._load().java.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    assert len(world.table.snapshots()) == 1
    assert_undone(world.sink(), 1, waiting, "")
    assert world.values() == [0, 70]


def test_a_link_to_what_has_expired_may_be_gone_as_well(world: World, rows: Rows) -> None:
    handle = append(world, rows, 0)
    rows(7, 1).writeTo(world.sql_name).append()
    world.table.maintenance.expire_snapshots().by_id(handle["snapshot_id"]).commit()
    (left,) = world.table.snapshots()
    assert left.parent_snapshot_id is None
    world.spark.sql(f"REFRESH TABLE {world.sql_name}")
    assert_undone(world.sink(), 0, handle, "")


def test_a_rewind_of_ours_is_no_rollback_and_one_to_before_it_is(world: World, rows: Rows) -> None:
    handles = [append(world, rows, epoch) for epoch in range(3)]
    before = main(world)
    sink = world.sink()
    sink.start(2, handles[2], 2)
    sink.rewind(1)
    assert_undone(world.sink(), 1, handles[1], "")
    rewound = main(world)
    handle = append(world, rows, 2, fence=2)
    for snapshot in (rewound, before):  # the latter has another epoch 2
        set_main(world, snapshot)
        said = f"was rolled back to snapshot {snapshot}, which is older than epoch 2"
        assert world.sink().undone(2, handle) == said


@pytest.mark.full  # the same is tried with appended rows above
def test_a_view_that_was_rolled_back_and_one_that_we_took_back(world: World) -> None:
    handles = [world.publish(epoch, k1=epoch) for epoch in range(2)]
    first = handles[0]["snapshot_id"]
    assert_undone(world.view(), 1, handles[1], "")
    sink = world.view()
    sink.start(1, handles[1], 2)
    sink.rewind(0)
    assert_undone(world.view(), 0, handles[0], "")
    handle = world.publish(1, fence=2, k1=11)
    set_main(world, first)
    assert_undone(
        world.view(), 1, handle, f"was rolled back to snapshot {first}, which is older than epoch 1"
    )


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_table_that_was_replaced_or_dropped(world: World, rows: Rows, is_empty: bool) -> None:
    handle = append(world, rows, 0)
    selected = "" if is_empty else " AS SELECT 1L AS value"
    columns = " (value bigint)" if is_empty else ""
    world.spark.sql(f"CREATE OR REPLACE TABLE {world.sql_name}{columns} USING iceberg{selected}")
    assert world.sink().committed() == {"offsets": 0}
    by = "an empty table" if is_empty else f"snapshot {main(world)}"
    assert_undone(world.sink(), 0, handle, f"was replaced by {by}, which does not have epoch 0")
    assert world.sink().undone(0, {**handle, "table": "another.t"}) == ""
    world.catalog.drop_table(world.identifier)
    assert_undone(world.sink(), 0, handle, "is not there any more")
