"""Epochs in an Iceberg table, read by pyiceberg: staged where nobody sees them, published once."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError, EndpointError, Fenced, SchemaError, UnexpectedFailure
from headrace.sinks.contract import Place
from headrace.sinks.iceberg import IcebergSink
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.iceberg_world import World, catalog, persistently, settings, world
from tests.sinks.together import run_together

__all__ = ["catalog", "settings", "world"]

WAP = "spark.wap.id"


def test_nothing_is_seen_before_the_commit_and_all_after_it(
    world: World, rows: Rows, spark: SparkSession
) -> None:
    world.sink().start(None, None, 1)
    assert spark.conf.get(WAP, None) is None
    handle = world.sink().prepare(an_epoch(12), rows(12))
    assert spark.conf.get(WAP, None) is None
    assert (handle["rows"], world.values()) == (3, [])
    world.sink().commit(12, handle)
    assert world.values() == [120, 121, 122]
    assert world.table.properties["headrace.epoch/view/dead"] == "12"
    snapshot = world.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["headrace.epoch"] == "12"
    assert world.sink().committed() == {"offsets": 12}


@pytest.mark.full
def test_the_summary_also_tells_when_others_were_faster(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    handle = world.sink().prepare(an_epoch(1), rows(1, 1))
    rows(9, 1).writeTo(world.sql_name).append()
    world.sink().commit(1, handle)
    snapshot = world.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.snapshot_id != handle["snapshot_id"]
    assert snapshot.summary["headrace.epoch"] == "1"
    assert snapshot.summary["headrace.checkpoint"] == '{"offsets":1}'
    assert world.sink().committed() == {"offsets": 1}


def test_a_commit_has_one_effect_however_often_and_after_those_of_others(world: World, rows: Rows) -> None:
    first = world.sink().prepare(an_epoch(0), rows(0))
    world.sink().commit(0, first)
    second = world.sink().prepare(an_epoch(1), rows(1))
    # Somebody else's rows, so that ours is no fast forward.
    rows(9, 1).writeTo(world.sql_name).append()
    for _ in range(2):
        world.sink().commit(1, second)
        world.sink().commit(0, first)
        assert world.values() == [0, 1, 2, 10, 11, 12, 90]
    world.sink().start(1, None, 2)  # removes what the second was staged as, and not its files
    world.sink().commit(1, second)
    assert world.values() == [0, 1, 2, 10, 11, 12, 90]


def test_a_commit_is_known_when_its_snapshot_has_expired(world: World, rows: Rows) -> None:
    handle = world.sink().prepare(an_epoch(0), rows(0))
    world.sink().commit(0, handle)
    rows(9, 1).writeTo(world.sql_name).append()
    world.sink()._load().java.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    assert len(world.table.snapshots()) == 1
    world.sink().commit(0, handle)
    assert world.values() == [0, 1, 2, 90]


def test_a_commit_by_hand_counts(world: World, rows: Rows, spark: SparkSession) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0)))
    handle = world.sink().prepare(an_epoch(1), rows(1))
    name = f"{world.identifier[0]}.{world.identifier[1]}".replace("some space", "`some space`")
    spark.sql(f"CALL {world.settings.name}.system.publish_changes('{name}', '{handle['wap_id']}')")
    for _ in range(2):
        world.sink().commit(1, handle)
        assert world.values() == [0, 1, 2, 10, 11, 12]
        assert world.sink().committed() == {"offsets": 1}
    world.sink().commit(2, world.sink().prepare(an_epoch(2), rows(2, 1)))
    assert world.values() == [0, 1, 2, 10, 11, 12, 20]
    assert world.table.properties["headrace.epoch/view/dead"] == "2"


def test_a_commit_goes_to_the_table_that_was_staged_in(world: World, rows: Rows) -> None:
    handle = world.sink().prepare(an_epoch(0), rows(0))
    elsewhere = IcebergSink("dead", world.spark, world.settings.name, ("other", "table"), writer="view")
    elsewhere.start(0, handle, 2)
    elsewhere.commit(0, handle)
    assert world.values() == [0, 1, 2]


@pytest.mark.full
@pytest.mark.parametrize("is_fast_forward", [True, False])
def test_two_who_commit_at_once(world: World, rows: Rows, is_fast_forward: bool) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    handle = world.sink().prepare(an_epoch(1), rows(1))
    if not is_fast_forward:
        rows(0, 1).writeTo(world.sql_name).append()
    run_together([lambda: persistently(lambda: world.sink().commit(1, handle))] * 3)
    assert world.values() == [*([0] if is_fast_forward else [0, 0]), 10, 11, 12]


def test_an_abort_removes_snapshot_and_files_and_may_be_repeated(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0)))
    before = world.data_files()
    handle = world.sink().prepare(an_epoch(1), rows(1))
    assert world.data_files() > before
    for _ in range(2):
        world.sink().abort(1, handle)
    assert (world.data_files(), len(world.table.snapshots())) == (before, 1)
    assert world.values() == [0, 1, 2]
    with pytest.raises(EndpointError, match="which was expired before it was published"):
        world.sink().commit(1, handle)


def test_a_start_removes_all_but_what_was_decided(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0)))
    never = world.sink().prepare(an_epoch(1), rows(1))
    decided = world.sink().prepare(an_epoch(1), rows(1))
    of_others = world.sink("view/dead").prepare(an_epoch(1), rows(7))
    later = world.sink().prepare(an_epoch(1, fence=3), rows(8))
    world.sink().start(1, decided, 2)
    left = {snapshot.snapshot_id for snapshot in world.table.snapshots()}
    assert never["snapshot_id"] not in left
    assert {handle["snapshot_id"] for handle in (decided, of_others, later)} <= left
    world.sink().commit(1, decided)
    world.sink("view/dead").commit(1, of_others)
    assert world.values() == [0, 1, 2, 10, 11, 12, 70, 71, 72]


def test_an_epoch_without_rows_leaves_no_trace(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0)))
    for empty in (None, rows(1, 0)):
        handle = world.sink().prepare(an_epoch(1), empty)
        assert handle == {}
        world.sink().commit(1, handle)
        world.sink().abort(1, handle)
        world.sink().start(1, handle, 2)
    assert (world.values(), len(world.table.snapshots())) == ([0, 1, 2], 1)


def test_an_epoch_that_the_table_has_is_not_staged_again(world: World, rows: Rows) -> None:
    world.sink().commit(3, world.sink().prepare(an_epoch(3), rows(3)))
    with pytest.raises(
        EndpointError, match="has the epochs of 'view' up to 3, and epoch 2 was never decided here"
    ):
        world.sink().prepare(an_epoch(2), rows(2))
    assert len(world.table.snapshots()) == 1


@pytest.mark.full
def test_a_rewind_deletes_the_writers_own_later_rows(world: World, rows: Rows) -> None:
    for number in range(3):
        for writer in ("ann's", "bob"):
            sink = world.sink(writer, owned="writer")
            own = rows(number, 1).selectExpr("*", f'"{writer}" as writer')
            sink.commit(number, sink.prepare(an_epoch(number), own))
    for _ in range(2):
        world.sink("ann's", owned="writer").rewind(0)
        assert world.values() == [0, 0, 10, 20]
    sink = world.sink("ann's", owned="writer")
    sink.commit(1, sink.prepare(an_epoch(1), rows(1, 1).selectExpr("*", '"ann\'s" as writer')))
    assert world.values() == [0, 0, 10, 10, 20]


@pytest.mark.parametrize("is_fast_forward", [True, pytest.param(False, marks=pytest.mark.full)])
def test_who_was_replaced_does_not_bring_back_what_was_rewound(
    world: World, rows: Rows, is_fast_forward: bool
) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    asleep = world.sink()
    handle = asleep.prepare(an_epoch(1), rows(1, 1))
    if not is_fast_forward:
        rows(0, 1).writeTo(world.sql_name).append()
    others = [0] if is_fast_forward else [0, 0]
    # Somebody takes over, finishes what was decided, and finds the endpoint at an earlier epoch.
    successor = world.sink()
    successor.start(1, handle, 2)
    successor.commit(1, handle)
    assert world.values() == [*others, 10]
    successor.rewind(0)
    asleep.commit(1, handle)
    assert world.values() == others
    again = successor.prepare(an_epoch(1, fence=2), rows(1, 2))
    asleep.commit(1, handle)
    successor.commit(1, again)
    asleep.commit(1, handle)
    assert world.values() == [*others, 10, 11]
    assert world.table.properties["headrace.epoch/view/dead"] == "1"


def test_a_rewind_needs_a_column_that_tells_the_epoch(world: World, rows: Rows) -> None:
    world.sink().rewind(0)  # no table, nothing to do
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0).drop("epoch")))
    with pytest.raises(ConfigError, match="has no column that tells a row's epoch"):
        world.sink().rewind(0)


def test_a_table_that_lost_its_setting_gets_it_back_before_rows_could_be_seen(
    world: World, rows: Rows, spark: SparkSession
) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0)))
    spark.sql(f"ALTER TABLE {world.sql_name} UNSET TBLPROPERTIES ('write.wap.enabled')")
    world.sink().prepare(an_epoch(1), rows(1))
    assert world.values() == [0, 1, 2]


@pytest.mark.full
def test_an_id_that_the_session_had_is_put_back(world: World, rows: Rows, spark: SparkSession) -> None:
    broken = rows(0).selectExpr("epoch", "cast(raise_error('no luck') as bigint) as value")
    spark.conf.set(WAP, "of somebody else")
    try:
        with pytest.raises(UnexpectedFailure, match="sink dead: cannot stage epoch 0 in ") as caught:
            world.sink().prepare(an_epoch(0), broken)
        assert "\n" not in caught.value.message
        assert spark.conf.get(WAP) == "of somebody else"
    finally:
        spark.conf.unset(WAP)


def test_a_rewind_takes_the_checkpoint_back(world: World, rows: Rows) -> None:
    assert world.sink().committed() is None
    for number in (1, 2):
        world.sink().commit(number, world.sink().prepare(an_epoch(number), rows(number, 1)))
    world.sink().rewind(1)
    assert world.sink().committed() == {"offsets": 1}
    world.sink().rewind(-1)
    assert (world.values(), world.sink().committed()) == ([], None)


@pytest.mark.full
def test_new_columns_are_null_in_what_was_there(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    wider = rows(1, 1).selectExpr("*", "'red' as colour", "named_struct('a b', array(1.5D)) as nested")
    world.sink().commit(1, world.sink().prepare(an_epoch(1), wider))
    world.sink().commit(2, world.sink().prepare(an_epoch(2), rows(2, 1)))
    read = world.table.scan().to_arrow().sort_by("epoch")
    assert read["colour"].to_pylist() == [None, "red", None]
    assert read["nested"].to_pylist() == [None, {"a b": [1.5]}, None]


def test_other_changes_of_columns_are_refused_before_anything_is_staged(
    world: World, rows: Rows, spark: SparkSession
) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS " + world.sql_name.rsplit(".", 1)[0])
    spark.sql(f"CREATE TABLE {world.sql_name} (epoch bigint, value bigint NOT NULL) USING iceberg")
    for columns, says in (
        (["cast(epoch as string) as epoch", "value"], "its column 'epoch' is bigint, and the rows have"),
        (["epoch", "value as VALUE"], "its column 'value' is bigint, and the rows have 'VALUE' as bigint"),
        (["epoch"], "its column 'value' must have a value, and the rows do not have it"),
    ):
        with pytest.raises(SchemaError, match=says):
            world.sink().prepare(an_epoch(0), rows(0).selectExpr(*columns))
    assert world.table.snapshots() == []


def test_what_a_place_says(world: World, rows: Rows, spark: SparkSession) -> None:
    place = Place(
        ".".join(world.identifier),
        "view",
        schema="epoch bigint, `odd name.` bigint, value bigint, at timestamp",
        catalog=world.settings,
        partitions=("value",),
        options={"write.target-file-size-bytes": "1000000"},
    )
    sink = IcebergSink.open("dead", place, spark)
    sink.commit(7, sink.prepare(an_epoch(7), rows(7)))
    assert [field.name for field in world.table.spec().fields] == ["value"]
    assert world.table.properties["write.target-file-size-bytes"] == "1000000"
    read = list(IcebergSink.read(place, ["value"], 7))
    assert sorted(value for batch in read for value in batch.column(0).to_pylist()) == [70, 71, 72]
    for wrong in ("colour", "write.wap.enabled"):
        with pytest.raises(ConfigError, match=f"has the option '{wrong}'"):
            IcebergSink.open("dead", Place("t", "view", catalog=world.settings, options={wrong: "1"}), spark)


@pytest.mark.full
def test_who_lost_his_fence_does_not_prepare_after_a_rewind(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    successor = world.sink()
    successor.start(0, None, 2)
    successor.rewind(-1)
    with pytest.raises(EndpointError, match="somebody who started later has gone back to an earlier epoch"):
        world.sink().prepare(an_epoch(0, fence=1), rows(0, 1))


def test_a_table_that_was_dropped_fails_for_good(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    handle = world.sink().prepare(an_epoch(1), rows(1, 1))
    world.catalog.drop_table(world.identifier)
    for _ in range(2):  # the session knows the table at first
        with pytest.raises(EndpointError, match=r"epoch 1 was staged in .*, which does not exist any more"):
            world.sink().commit(1, handle)


def test_who_was_replaced_takes_nothing_back(world: World, rows: Rows) -> None:
    world.sink().commit(0, world.sink().prepare(an_epoch(0), rows(0, 1)))
    asleep, successor = world.sink(), world.sink()
    asleep.start(0, None, 2)
    successor.start(0, None, 3)
    successor.commit(1, successor.prepare(an_epoch(1, fence=3), rows(1, 1)))
    with pytest.raises(Fenced, match="another coordinator has started since"):
        asleep.rewind(0)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        world.sink().start(0, None, 2)
    assert (world.values(), successor.committed()) == ([0, 10], {"offsets": 1})
    successor.rewind(0)
    assert (world.values(), successor.committed()) == ([0], {"offsets": 0})
