"""Epochs in a Hudi table, read by Hudi's package for Python and by DuckDB."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from headrace.errors import ConfigError, EndpointError, EndpointUnavailable, Fenced, SchemaError
from headrace.sinks import hudi_reading
from headrace.sinks.contract import Epoch
from headrace.sinks.hudi import HudiSink
from headrace.sinks.hudi_tables import HudiTable
from tests.sinks.conftest import an_epoch
from tests.sinks.hudi_child import STEPS
from tests.sinks.hudi_world import World
from tests.sinks.killed_child import kill_child
from tests.sinks.together import polled, run_together


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def test_rows_are_appended_and_seen_from_the_commit_on(world: World) -> None:
    assert world.sink().committed() is None
    world.append(0, k1=10, k2=20)
    handle = world.sink().prepare(an_epoch(1), world.rows(1, k1=11))
    assert (handle["rows"], world.state()) == (1, [(1, 10), (2, 20)])
    for _ in range(2):
        world.sink().commit(1, handle)
        assert world.state() == [(1, 10), (1, 11), (2, 20)]
    assert world.sink().committed() == {"offsets": 1}


@pytest.mark.full
def test_appends_do_not_wait_for_each_other(world: World) -> None:
    first = world.sink().prepare(an_epoch(0), world.rows(0, k1=10))
    second = world.sink().prepare(an_epoch(1), world.rows(1, k2=20))
    world.sink().commit(0, first)
    world.sink().commit(1, second)
    assert world.state() == [(1, 10), (2, 20)]


def test_a_view_has_one_row_for_each_key_and_waits_for_the_epoch_before(world: World) -> None:
    assert world.sink("id").current() is None
    first = world.sink("id").prepare(an_epoch(0), world.rows(k1=10, k2=20))
    waits = Epoch(1, 1, {"offsets": 1}, lambda: world.sink("id").commit(0, first))
    handle = world.sink("id").prepare(waits, world.rows(k2=21, k3=31))
    assert (handle["rows"], world.state()) == (2, [(1, 10), (2, 20)])
    world.sink("id").commit(1, handle)
    assert world.state() == [(1, 10), (2, 21), (3, 31)]
    current = world.sink("id").current()
    assert current is not None
    assert sorted(tuple(row) for row in current.collect()) == world.state()
    assert world.sink("id").committed() == {"offsets": 1}


@pytest.mark.full
def test_a_decided_epoch_that_is_committed_late_changes_nothing(world: World) -> None:
    first = world.publish(0, k1=10, k2=20)
    second = world.publish(1, k1=11)
    world.publish(2, k1=12)
    timeline = world.timeline()
    for _ in range(2):
        world.sink("id").commit(0, first)
        world.sink("id").commit(1, second)
        assert (world.state(), world.timeline()) == ([(1, 12), (2, 20)], timeline)


def test_who_was_stopped_in_a_commit_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """He has looked, and found it pending."""
    world.publish(0, k1=10, k2=20)
    handle = world.sink("id").prepare(an_epoch(1), world.rows(k1=11))
    complete = HudiTable.complete

    def stopped(table: HudiTable, *arguments: Any) -> None:
        monkeypatch.setattr(HudiTable, "complete", complete)
        world.sink("id").commit(1, handle)
        world.publish(2, k1=12, k3=32)
        complete(table, *arguments)

    monkeypatch.setattr(HudiTable, "complete", stopped)
    world.sink("id").commit(1, handle)
    assert world.state() == [(1, 12), (2, 20), (3, 32)]
    assert len([name for name in world.timeline() if name.startswith(handle["instant"] + "_")]) == 1
    assert world.sink("id").committed() == {"offsets": 2}


@pytest.mark.full
def test_some_who_commit_at_once(world: World) -> None:
    world.publish(0, k1=10)
    handle = world.sink("id").prepare(an_epoch(1), world.rows(k1=11, k2=21))
    run_together([lambda: world.sink("id").commit(1, handle)] * 3)
    assert world.state() == [(1, 11), (2, 21)]
    assert len([name for name in world.timeline() if name.startswith(handle["instant"] + "_")]) == 1


def test_a_start_removes_all_but_what_was_decided(world: World) -> None:
    world.append(0, k1=10)
    files = world.data_files()
    never = world.sink().prepare(an_epoch(1), world.rows(1, k1=98))
    later = world.sink().prepare(an_epoch(1, fence=3), world.rows(1, k1=99))
    decided = world.sink().prepare(an_epoch(1), world.rows(1, k1=11))
    world.sink().start(1, decided, 2)
    assert world.pending() == {decided["instant"], later["instant"]}
    world.sink().commit(1, decided)
    world.sink().start(1, decided, 4)
    assert (world.pending(), world.state()) == (set(), [(1, 10), (1, 11)])
    assert world.data_files() == files + 1
    with pytest.raises(EndpointError, match="which was rolled back before it was completed"):
        world.sink().commit(2, {**never, "told": {"epoch": 2, "checkpoint": {}}})


def test_an_abort_and_an_epoch_without_rows_leave_no_trace(world: World) -> None:
    world.append(0, k1=10)
    files = world.data_files()
    assert world.sink().prepare(an_epoch(1), None) == {}
    assert world.sink().prepare(an_epoch(1), world.rows(1, k1=1).where("id > 5")) == {}
    assert (world.pending(), world.data_files(), world.state()) == (set(), files, [(1, 10)])
    handle = world.sink().prepare(an_epoch(1), world.rows(1, k1=11))
    for _ in range(2):
        world.sink().abort(1, handle)
        assert (world.pending(), world.data_files(), world.state()) == (set(), files, [(1, 10)])


@pytest.mark.full
@pytest.mark.parametrize("keys", [(), ("id",)])
def test_rows_are_asked_for_once(world: World, spark: SparkSession, keys: tuple[str, ...]) -> None:
    asked = spark.sparkContext.accumulator(0)

    def count(value: int) -> int:
        asked.add(1)
        return value

    counted = F.udf(count, "bigint", useArrow=False).asNondeterministic()
    for epoch in range(2):
        rows = world.rows(epoch, k1=11, k3=31).withColumn("value", counted("value"))
        sink = world.sink(*keys)
        sink.commit(epoch, sink.prepare(an_epoch(epoch), rows))
        assert asked.value == 2 * (epoch + 1)


@pytest.mark.full
def test_who_counts_rows_while_they_are_written_is_told(world: World) -> None:
    counting = Observation()
    rows = world.rows(k1=10, k2=20).observe(counting, F.count(F.lit(1)).alias("rows"))
    assert world.sink("id").prepare(an_epoch(0), rows)["rows"] == 2
    assert counting.get == {"rows": 2}


@pytest.mark.full
def test_new_columns_are_null_in_what_was_there(world: World) -> None:
    world.publish(0, k1=10, k2=20)
    wider = world.rows(k2=21, k3=31).selectExpr("*", "'red' as colour")
    handle = world.sink("id").prepare(an_epoch(1), wider)
    current = world.sink("id").current()
    assert current is not None
    assert current.columns == ["id", "value"]  # until the commit
    world.sink("id").commit(1, handle)
    world.publish(2, k3=32)
    current = world.sink("id").current()
    assert current is not None
    assert sorted(tuple(row) for row in current.collect()) == [(1, 10, None), (2, 21, "red"), (3, 32, None)]
    assert world.state() == [(1, 10), (2, 21), (3, 32)]


def test_other_changes_are_refused_before_anything_is_staged(world: World) -> None:
    world.publish(0, k1=10)
    before = world.timeline()
    changed = world.rows(k1=11).selectExpr("id", "cast(value as string) as value")
    with pytest.raises(
        SchemaError, match="its column 'value' is bigint, and the rows have 'value' as string"
    ):
        world.sink("id").prepare(an_epoch(1), changed)
    with pytest.raises(SchemaError, match="has rows by the key id, and the key is now value"):
        world.sink("value").prepare(an_epoch(1), world.rows(k1=11))
    with pytest.raises(SchemaError, match="the key's column 'id' is not among those of the rows"):
        world.sink("id").prepare(an_epoch(1), world.rows(k1=11).drop("id"))
    with pytest.raises(SchemaError, match="a column that begins with _hoodie_"):
        world.sink("id").prepare(an_epoch(1), world.rows(k1=11).withColumn("_hoodie_x", F.lit(1)))
    with pytest.raises(
        EndpointError, match="has the epochs of 'view' up to 0, and epoch 0 was never decided"
    ):
        world.sink("id").prepare(an_epoch(0), world.rows(k1=11))
    assert world.timeline() == before
    with pytest.raises(ConfigError, match="has the option 'colour'"):
        world.sink(options={"colour": "red"})


@pytest.mark.full
def test_partitions_of_a_view_whose_rows_move(world: World) -> None:
    for epoch, part in enumerate("aab"):
        rows = world.rows(k1=epoch, k2=epoch).selectExpr("*", f"'{part}' as part")
        sink = world.sink("id", partitions=("part",))
        sink.commit(epoch, sink.prepare(an_epoch(epoch), rows))
    current = world.sink("id", partitions=("part",)).current()
    assert current is not None
    assert sorted(tuple(row) for row in current.collect()) == [(1, 2, "b"), (2, 2, "b")]
    assert world.state() == [(1, 2), (2, 2)]


@pytest.mark.full
def test_a_reader_sees_whole_epochs(world: World) -> None:
    world.publish(0, k1=0, k2=0, k3=0)
    with polled(world._by_package) as seen:
        for epoch in range(1, 4):
            world.publish(epoch, k1=epoch, k2=epoch, k3=epoch)
    assert all(len(rows) == 3 and len({value for _, value in rows}) == 1 for rows in seen)


def test_a_rewind_deletes_later_rows_which_nobody_brings_back(world: World) -> None:
    handles = [world.append(epoch, k1=epoch, k2=epoch) for epoch in range(2)]
    asleep, successor = world.sink(), world.sink()
    asleep.start(1, handles[1], 2)
    successor.start(1, handles[1], 3)
    successor.refuse_rewind(0)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        asleep.rewind(0)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        world.sink().start(1, None, 2)
    assert len(world.state()) == 4
    for _ in range(2):
        successor.rewind(0)
        assert world.state() == [(1, 0), (2, 0)]
    assert (successor.committed(), successor.undone(0, handles[0])) == ({"offsets": 0}, "")
    world.sink().commit(1, handles[1])
    assert world.state() == [(1, 0), (2, 0)]
    world.append(1, fence=3, k5=55)
    assert world.state() == [(1, 0), (2, 0), (5, 55)]
    assert list(HudiSink.audit(world.place(), {0: 2, 1: 1})) == []


def test_a_table_that_was_removed_fails_for_good(world: World) -> None:
    handle = world.sink().prepare(an_epoch(1), world.rows(1, k1=2))
    shutil.rmtree(world.folder)
    with pytest.raises(EndpointError, match=r"epoch 1 was staged in .*, which does not exist any more"):
        world.sink().commit(1, handle)


@pytest.mark.full
def test_who_is_replaced_while_it_reads_takes_nothing_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in range(2):
        world.append(epoch, k1=epoch)
    asleep, successor = world.sink(), world.sink()
    asleep.start(1, None, 2)
    count = DataFrame.count

    def count_late(rows: DataFrame) -> int:
        monkeypatch.undo()
        found = count(rows)
        successor.start(1, None, 3)
        return found

    monkeypatch.setattr(DataFrame, "count", count_late)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        asleep.rewind(0)
    assert world.state() == [(1, 0), (1, 1)]


@pytest.mark.full
def test_names_with_capital_letters_go_back_too(world: World) -> None:
    for writer in ("View", "view"):
        for epoch in range(2):
            sink = world.sink(writer=writer, owned="who")
            rows = world.rows(epoch, k1=epoch).selectExpr("*", f"'{writer}' as who")
            sink.commit(epoch, sink.prepare(an_epoch(epoch), rows))
    capital, small = (world.sink(writer=writer, owned="who") for writer in ("View", "view"))
    capital.rewind(0)
    assert (capital.committed(), small.committed()) == ({"offsets": 0}, {"offsets": 1})
    assert world.state() == [(1, 0), (1, 0), (1, 1)]
    for writer, epochs in (("View", {0: 1}), ("view", {0: 1, 1: 1})):
        assert list(HudiSink.audit(world.place(writer=writer, owned="who"), epochs)) == []


def test_a_view_does_not_go_back(world: World) -> None:
    world.publish(1, k1=11)
    sink = world.sink("id")
    for go_back in (sink.refuse_rewind, sink.rewind):
        go_back(1)
        with pytest.raises(ConfigError, match="cannot go back to epoch 0, since Hudi does not keep"):
            go_back(0)


def test_maintenance_leaves_what_is_decided_alone(world: World) -> None:
    for epoch in range(2):
        world.publish(epoch, k1=epoch)
    decided = world.sink("id").prepare(an_epoch(2), world.rows(k1=44))
    list(world.sink("id").maintain(timedelta(0), decided))
    assert world.pending() == {decided["instant"]}
    world.sink("id").commit(2, decided)
    assert world.state() == [(1, 44)]


@pytest.mark.full
def test_maintenance_leaves_what_anybody_of_us_has_staged(world: World) -> None:
    """The next epoch waits for a sink that cannot commit the one before; others have decided epochs too."""
    world.append(0, k1=10)
    waiting, after = (world.sink().prepare(an_epoch(epoch), world.rows(epoch, k1=epoch)) for epoch in (1, 2))
    other = world.sink(writer="other")
    decided = other.prepare(an_epoch(0), world.rows(0, k9=90))
    nobodys = world.sink(writer="nobody").prepare(an_epoch(0), world.rows(0, k8=80))
    for note in (world.folder / ".hoodie" / "headrace" / "nobody%2Frows").iterdir():
        note.unlink()
    said = list(world.sink().maintain(timedelta(0), waiting))
    assert said[0] == f"instant {nobodys['instant']}, which nobody completed, was rolled back"
    assert world.pending() == {waiting["instant"], after["instant"], decided["instant"]}
    other.commit(0, decided)
    world.sink().commit(1, waiting)
    world.sink().commit(2, after)
    assert world.state() == [(1, 1), (1, 2), (1, 10), (9, 90)]


@pytest.mark.full
def test_maintenance_leaves_what_is_completed_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.append(0, k1=10)
    handle = world.sink().prepare(an_epoch(1), world.rows(1, k1=11))
    instants = HudiTable.instants

    def read_then_commit(table: HudiTable) -> tuple[list[str], list[str]]:
        found = instants(table)
        monkeypatch.undo()
        world.sink().commit(1, handle)
        return found

    monkeypatch.setattr(HudiTable, "instants", read_then_commit)
    list(world.sink().maintain(timedelta(0), None))
    assert world.state() == [(1, 10), (1, 11)]


@pytest.mark.full
def test_the_last_epoch_is_known_when_it_was_archived(world: World) -> None:
    for epoch in range(3):
        last = world.publish(epoch, k1=epoch)
    few = {
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.clean.policy": "KEEP_LATEST_COMMITS",
        "hoodie.clean.commits.retained": "1",
    }
    for epoch in range(8):  # of somebody else
        sink = world.sink("id", writer="other", options=few)
        sink.commit(epoch, sink.prepare(an_epoch(epoch), world.rows(k7=epoch)))
        list(sink.maintain(timedelta(0), None))
    assert len([name for name in world.timeline() if name.endswith(".commit")]) < 8
    assert world.sink("id").committed() == {"offsets": 2}
    assert [name for name in world.timeline() if last["instant"] in name] == []
    assert world.sink("id").undone(2, last) == ""
    assert world.state() == [(1, 2), (7, 7)]


@pytest.mark.full
def test_rows_of_one_writer_and_epoch_are_read(world: World) -> None:
    for writer in ("ann", "bob"):
        sink = world.sink(writer=writer, owned="writer")
        rows = world.rows(3, k1=len(writer), k2=7).selectExpr("*", f"'{writer}' as writer")
        sink.commit(3, sink.prepare(an_epoch(3), rows))
    place = world.place(writer="bob", owned="writer")
    read = [row for batch in HudiSink.read(place, ["writer", "value"], 3) for row in batch.to_pylist()]
    assert sorted(row["value"] for row in read) == [3, 7]
    assert {row["writer"] for row in read} == {"bob"}
    assert list(HudiSink.read(place, ["value"], 4)) == []


def test_an_audit_counts(world: World) -> None:
    world.append(0, k1=10, k2=20)
    assert list(HudiSink.audit(world.place(), {0: 2})) == []
    assert list(HudiSink.audit(world.place(), {0: 3, 1: 5})) == [
        "epoch 0 was committed with 3 rows, and 2 are there",
        "epoch 1 was committed with 5 rows, and 0 are there",
        "epoch 1 was committed, and the table says that epoch 0 is its last",
    ]


def test_an_audit_of_a_view_that_has_a_key_twice_or_is_gone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, real = world.place("id"), hudi_reading.read_rows
    assert list(HudiSink.audit(place, {0: 0})) == []
    world.publish(0, k1=10, k2=20)
    assert list(HudiSink.audit(place, {0: 1})) == []
    assert list(HudiSink.audit(place, {0: 1, 2: 1, 3: 0})) == [
        "epoch 2 was committed, and the table says that epoch 0 is its last"
    ]
    assert list(HudiSink.audit(place, {}, lambda: 0)) == []
    assert list(HudiSink.audit(place, {}, lambda: -1)) == [
        "the table says that epoch 0 is its last, which was never decided"
    ]
    with monkeypatch.context() as patched:
        patched.setattr(hudi_reading, "read_rows", lambda *how: [*real(*how), *real(*how)])
        assert list(HudiSink.audit(place, {0: 2})) == [
            f"2 keys have more than one row in {world.folder.as_uri()}"
        ]
    shutil.rmtree(world.folder)
    assert list(HudiSink.audit(place, {0: 1, 1: 0})) == [
        f"there is no Hudi table in {world.folder.as_uri()}, or no commit, and it has had epochs up to 0"
    ]


def test_a_table_that_cannot_be_read_is_not_taken_for_none(world: World) -> None:
    (world.folder / ".hoodie").mkdir(parents=True)
    (world.folder / ".hoodie" / "hoodie.properties").write_text("hoodie.table.name=headrace")
    with pytest.raises(EndpointUnavailable, match="cannot be read"):
        list(HudiSink.audit(world.place("id"), {0: 1}))


@pytest.mark.full
@pytest.mark.parametrize(("kind", "step"), [*(("view", step) for step in STEPS), ("append", "completing")])
def test_a_process_is_killed_and_each_row_is_there_once(
    world: World, tmp_path: Path, kind: str, step: str
) -> None:
    keys = ("id",) if kind == "view" else ()
    (world.publish if keys else world.append)(0, k1=10, k2=20)
    told = {"table": world.folder.as_uri(), "kind": kind, "step": step}
    handle = kill_child("tests.sinks.hudi_child", told, tmp_path)
    before = [(1, 10), (2, 20)]
    after = [(1, 11), (2, 20), (3, 31)] if keys else [(1, 10), (1, 11), (2, 20), (3, 31)]
    assert world.state() == (after if step == "completed" else before)
    successor = world.sink(*keys)
    successor.start(1 if handle else 0, handle, 3)
    if handle is None:
        assert world.pending() == set()
        rows = world.rows(None if keys else 1, k1=11, k3=31)
        handle = successor.prepare(an_epoch(1, fence=3), rows)
    for _ in range(2):
        successor.commit(1, handle)
        assert (world.pending(), world.state()) == (set(), after)
    assert successor.committed() == {"offsets": 1}
