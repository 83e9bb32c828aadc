"""Epochs that are appended to a Delta table."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake
from pyspark.sql import SparkSession

from headrace.errors import ConfigError, EndpointError, SchemaError
from headrace.sinks.contract import Place
from headrace.sinks.delta import DeltaSink
from tests.sinks.conftest import Rows
from tests.sinks.delta.conftest import OWN, World, in_both
from tests.sinks.delta.replay import live_files, log_entries


@in_both
def test_nothing_is_seen_before_the_commit_and_all_after_it(world: World, rows: Rows) -> None:
    world.sink().start(None, None, 1)
    handle = world.prepare(12, rows(12))
    assert (handle["rows"], world.values()) == (3, [])
    world.sink().commit(12, handle)
    assert world.values() == [120, 121, 122]
    assert world.staged() == []
    last = log_entries(world.store)[-1]
    assert {"txn": {"appId": OWN, "version": 12}} in last
    (info,) = [action["commitInfo"] for action in last if "commitInfo" in action]
    assert info["headrace"]["epoch"] == 12
    assert info["headrace"]["runtime_checkpoint"] == {"offsets": 12}
    table = pa.RecordBatchReader.from_stream(world.table.scan()).read_all()
    assert table["at"][0].as_py().isoformat() == "2026-11-16T08:00:00.123456+00:00"
    read = pa.Table.from_batches(DeltaSink.read(world.place, ["value", "odd name.", "epoch"], 12))
    assert read["epoch"].to_pylist() == [12, 12, 12]
    assert list(DeltaSink.audit(world.place, {12: 3})) == []


def test_duckdb_reads_the_files_that_the_log_names(folder_world: World, rows: Rows) -> None:
    for number in range(2):
        folder_world.run(number, rows(number))
    folder_world.prepare(2, rows(2))
    root = folder_world.folder
    files = [f"{root}/{path}" for path in live_files(folder_world.store)]
    found = duckdb.execute("SELECT epoch, sum(value) FROM read_parquet(?) GROUP BY 1 ORDER BY 1", [files])
    assert found.fetchall() == [(0, 3), (1, 33)]


def test_a_commit_has_one_effect_however_often_and_after_those_of_others(world: World, rows: Rows) -> None:
    first = world.run(0, rows(0))
    second = world.prepare(1, rows(1))
    others = pa.table({"value": [90]})
    write_deltalake(world.table, others, mode="append", schema_mode="merge")
    for _ in range(2):
        world.sink().commit(1, second)
        world.sink().commit(0, first)
        assert world.values() == [0, 1, 2, 10, 11, 12, 90]
    world.sink().start(1, second, 2)
    world.sink().commit(1, second)
    assert world.values() == [0, 1, 2, 10, 11, 12, 90]


def test_an_abort_and_an_epoch_without_rows_leave_nothing(folder_world: World, rows: Rows) -> None:
    for frame in (rows(0, 0), None, rows(0)):
        handle = folder_world.prepare(0, frame)
        for _ in range(2):
            folder_world.sink().abort(0, handle)
        assert (folder_world.paths("data"), folder_world.staged(), folder_world.values()) == ([], [], [])
    folder_world.sink().commit(0, {})


def test_a_start_removes_all_but_what_was_decided(world: World, rows: Rows) -> None:
    world.prepare(0, rows(0))
    decided = world.prepare(0, rows(0))
    world.prepare(1, rows(1))
    theirs = world.prepare(1, rows(1), fence=3)
    world.sink().start(0, decided, 2)
    assert {path.split("/")[1] for path in world.paths("data")} == {decided["staged"], theirs["staged"]}
    world.sink().commit(0, decided)
    assert world.values() == [0, 1, 2]


def test_a_rewind_deletes_later_epochs_which_then_come_again(world: World, rows: Rows) -> None:
    for number in range(3):
        world.run(number, rows(number, 1))
    for _ in range(2):
        world.sink().rewind(0)
        assert world.values() == [0]
    assert world.sink().committed() == {"offsets": 0}
    world.run(1, rows(1, 2))
    assert world.values() == [0, 10, 11]
    world.sink().rewind(-1)
    assert (world.values(), world.sink().committed()) == ([], None)


def test_partitions_are_in_the_log(world: World, rows: Rows) -> None:
    parted = rows(0, 4).selectExpr("*", "concat('p ', value % 2) as part")
    world.run(0, parted, partitions=("part",))
    adds = live_files(world.store).values()
    assert {add["partitionValues"]["part"] for add in adds} == {"p 0", "p 1"}
    read = pa.Table.from_batches(DeltaSink.read(world.place, ["part", "value"], 0)).to_pylist()
    assert sorted((row["part"], row["value"]) for row in read) == [
        ("p 0", 0),
        ("p 0", 2),
        ("p 1", 1),
        ("p 1", 3),
    ]
    with pytest.raises(ConfigError, match=r"is laid out by \['part'\], and this sink is to lay it out by"):
        world.prepare(1, parted)


def test_columns_may_come_and_nothing_else_may_change(folder_world: World, rows: Rows) -> None:
    folder_world.run(0, rows(0, 1))
    folder_world.run(1, rows(1, 1).selectExpr("*", "array('x') as new"))
    folder_world.run(2, rows(2, 1))
    before = folder_world.paths("data")
    for change in ("'x' as new", "array('x') as NEW"):
        with pytest.raises(SchemaError, match=r"has the column 'new' as array|differs in case only"):
            folder_world.prepare(3, rows(3, 1).selectExpr("*", change))
    assert (folder_world.paths("data"), folder_world.staged()) == (before, [])
    read = pa.Table.from_batches(DeltaSink.read(folder_world.place, ["value", "new"], None)).to_pylist()
    assert sorted(read, key=lambda row: row["value"]) == [
        {"value": 0, "new": None},
        {"value": 10, "new": ["x"]},
        {"value": 20, "new": None},
    ]


def test_a_table_that_another_pipeline_uses_is_refused(folder_world: World, rows: Rows) -> None:
    folder_world.run(1, rows(1))
    with pytest.raises(
        EndpointError, match="has the epochs of 'view' up to 1, and epoch 1 was never decided"
    ):
        folder_world.prepare(1, rows(1))
    assert folder_world.staged() == []


def test_tables_that_want_more_of_their_writers_are_refused(folder_world: World, rows: Rows) -> None:
    folder_world.run(0, rows(0))
    folder_world.table.alter.add_constraint({"small": "value < 1000"})
    with pytest.raises(ConfigError, match=r"has the constraint delta.constraints.small that this sink does"):
        folder_world.prepare(1, rows(1))


def test_a_table_tells_where_its_last_epoch_ends_when_its_log_was_cleaned(
    folder_world: World, rows: Rows
) -> None:
    assert folder_world.sink().committed() is None
    for number in range(3):
        folder_world.run(number, rows(number))
    folder_world.table.create_checkpoint()
    log = folder_world.folder / "_delta_log"
    for version in range(folder_world.table.version()):
        (log / f"{version:020}.json").unlink()
    assert folder_world.sink().committed() == {"offsets": 2}
    folder_world.run(3, rows(3))
    assert folder_world.sink().committed() == {"offsets": 3}
    folder_world.sink().rewind(1)
    assert folder_world.sink().committed() == {"offsets": 1}


@pytest.mark.full
def test_properties_of_a_new_table(folder_world: World, rows: Rows) -> None:
    options = {"delta.logRetentionDuration": "interval 60 days"}
    folder_world.run(0, rows(0), options=options)
    assert folder_world.table.metadata().configuration == {"delta.checkpointInterval": "10", **options}


def test_a_commit_goes_to_the_table_that_was_staged_in(folder_world: World, rows: Rows) -> None:
    handle = folder_world.prepare(0, rows(0))
    never = folder_world.prepare(1, rows(1))
    moved = DeltaSink(
        "orders", replace(folder_world.place, location=f"{folder_world.place.location}2"), folder_world.spark
    )
    moved.start(0, handle, 2)
    moved.commit(0, handle)
    moved.abort(1, never)
    assert (folder_world.values(), folder_world.staged()) == ([0, 1, 2], [])


@pytest.mark.full
def test_a_repeated_transaction_of_somebody_else_is_none_of_ours(folder_world: World, rows: Rows) -> None:
    folder_world.run(0, rows(0))
    table = folder_world.table
    theirs = CommitProperties(app_transactions=[Transaction("somebody", 7)])
    table.create_write_transaction([], "append", table.schema(), [], commit_properties=theirs)
    folder_world.run(1, rows(1))
    assert folder_world.values() == [0, 1, 2, 10, 11, 12]


def test_places_that_cannot_be(spark: SparkSession) -> None:
    with pytest.raises(ConfigError, match="'nonsense' is not valid"):
        DeltaSink("orders", Place("s3://bucket/x", "view", options={"nonsense": "1"}), spark)
    with pytest.raises(ConfigError, match="a view has its table for itself"):
        DeltaSink("orders", Place("/srv/x", "view", keys=("key",), owned="who"), spark)
