"""Views in an Iceberg table, read by pyiceberg: merged where nobody sees it, and then all at once."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import Observation, SparkSession
from pyspark.sql import functions as F
from sqlalchemy.exc import OperationalError

from headrace.errors import ConfigError, Fenced, SchemaError, UnexpectedFailure
from headrace.sinks.contract import Epoch
from headrace.sinks.iceberg import IcebergSink
from headrace.sinks.iceberg_tables import JavaTable, State
from tests.sinks.conftest import an_epoch
from tests.sinks.iceberg_world import (
    World,
    catalog,
    make_known,
    persistently,
    settings,
    world,
)
from tests.sinks.together import polled, run_together

__all__ = ["catalog", "settings", "world"]


def test_nothing_is_seen_before_the_commit_and_all_after_it(world: World) -> None:
    assert world.view().current() is None
    first = world.view().prepare(an_epoch(0), world.rows(k1=10, k2=20))
    waits = Epoch(1, 1, {"offsets": 1}, lambda: world.view().commit(0, first))
    handle = world.view().prepare(waits, world.rows(k2=21, k3=31))
    assert (handle["rows"], world.state()) == (2, [(1, 10), (2, 20)])
    assert (handle["base"], world.branches()) == (first["snapshot_id"], [handle["branch"]])
    world.view().commit(1, handle)
    assert (world.state(), world.branches()) == ([(1, 10), (2, 21), (3, 31)], [])
    snapshot = world.table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.snapshot_id == handle["snapshot_id"]
    assert snapshot.summary["headrace.epoch"] == "1"
    assert world.view().committed() == {"offsets": 1}
    current = world.view().current()
    assert current is not None
    assert sorted(tuple(row) for row in current.collect()) == world.state()


@pytest.mark.full
def test_a_commit_has_one_effect_also_after_later_ones(world: World) -> None:
    first = world.publish(0, k1=10, k2=20)
    second = world.publish(1, k1=11)
    for _ in range(2):
        world.view().commit(0, first)
        world.view().commit(1, second)
        assert world.state() == [(1, 11), (2, 20)]


def test_what_others_did_to_main_meanwhile_is_kept(world: World) -> None:
    world.publish(0, k1=10, k2=20)
    handle = world.view().prepare(an_epoch(1), world.rows(k2=21, k3=31))
    world.append_by_hand(k7=77)
    for _ in range(2):
        world.view().commit(1, handle)
        assert (world.state(), world.branches()) == ([(1, 10), (2, 21), (3, 31), (7, 77)], [])
    assert world.view().committed() == {"offsets": 1}
    # What it was staged as first is gone, with its files.
    assert handle["snapshot_id"] not in {one.snapshot_id for one in world.table.snapshots()}


@pytest.mark.full
def test_what_others_deleted_meanwhile_does_not_come_back(world: World, spark: SparkSession) -> None:
    world.view().commit(0, world.view().prepare(an_epoch(0), world.rows(k1=10, k2=20).coalesce(1)))
    handle = world.view().prepare(an_epoch(1), world.rows(k2=21))
    spark.sql(f"DELETE FROM {world.sql_name} WHERE id = 1")
    world.view().commit(1, handle)
    assert world.state() == [(2, 21)]


@pytest.mark.full
def test_a_column_that_others_added_meanwhile(world: World, spark: SparkSession) -> None:
    world.publish(0, k1=10, k2=20)
    handle = world.view().prepare(an_epoch(1), world.rows(k2=21))
    world.append_by_hand(k7=77)
    spark.sql(f"ALTER TABLE {world.sql_name} ADD COLUMN colour string")
    world.view().commit(1, handle)
    assert world.state() == [(1, 10), (2, 21), (7, 77)]


@pytest.mark.full
def test_a_commit_in_a_thread_and_session_of_its_own(world: World, spark: SparkSession) -> None:
    """As the coordinator's; nothing of what another thread has set can be taken for granted."""
    world.publish(0, k1=10)
    handle = world.view().prepare(an_epoch(1), world.rows(k1=11))
    world.append_by_hand(k7=77)
    session = spark.newSession()
    make_known(session, world.settings)
    own = IcebergSink("rows", session, world.settings.name, world.identifier, writer="view", keys=("id",))
    own.start(1, handle, 1)
    run_together([lambda: own.commit(1, handle)])
    assert world.state() == [(1, 11), (7, 77)]


@pytest.mark.full
def test_a_compaction_meanwhile(world: World, spark: SparkSession) -> None:
    for epoch in range(6):
        world.publish(epoch, k1=epoch, **{f"k{epoch + 2}": epoch})
    handle = world.view().prepare(an_epoch(6), world.rows(k1=60, k4=64))
    said = list(world.view().maintain(timedelta(days=1), handle))
    assert any("data files became" in sentence for sentence in said)
    world.view().commit(6, handle)
    assert world.state() == [(1, 60), (2, 0), (3, 1), (4, 64), (5, 3), (6, 4), (7, 5)]


@pytest.mark.full
@pytest.mark.parametrize("is_fast_forward", [True, False])
def test_some_who_commit_at_once(world: World, is_fast_forward: bool) -> None:
    world.publish(0, k1=10)
    handle = world.view().prepare(an_epoch(1), world.rows(k1=11, k2=21))
    if not is_fast_forward:
        world.append_by_hand(k7=77)
    run_together([lambda: persistently(lambda: world.view().commit(1, handle))] * 3)
    assert world.state() == [(1, 11), (2, 21), *([] if is_fast_forward else [(7, 77)])]
    world.view().start(1, handle, 2)
    assert world.branches() == []


@pytest.mark.full
def test_a_start_removes_all_but_what_was_decided(world: World) -> None:
    world.publish(0, k1=10)
    files = world.data_files()
    never = world.view().prepare(an_epoch(1), world.rows(k1=98))
    of_others = world.view(writer="view/rows").prepare(an_epoch(1), world.rows(k8=88))
    later = world.view().prepare(an_epoch(1, fence=3), world.rows(k1=99))
    decided = world.view().prepare(an_epoch(1), world.rows(k1=11))
    world.view().start(1, decided, 2)
    assert world.branches() == sorted(handle["branch"] for handle in (decided, of_others, later))
    assert never["snapshot_id"] not in {one.snapshot_id for one in world.table.snapshots()}
    world.view().commit(1, decided)
    assert world.state() == [(1, 11)]
    world.view().start(1, decided, 4)
    world.view(writer="view/rows").start(None, None, 4)
    # The new row, and the position delete of the one before.
    assert (world.branches(), world.data_files()) == ([], files + 2)


@pytest.mark.full
def test_an_abort_may_be_repeated(world: World) -> None:
    world.publish(0, k1=10)
    files = world.data_files()
    handle = world.view().prepare(an_epoch(1), world.rows(k1=11))
    for _ in range(2):
        world.view().abort(1, handle)
        assert (world.branches(), world.data_files(), world.state()) == ([], files, [(1, 10)])


def test_an_epoch_without_rows_leaves_no_trace(world: World) -> None:
    world.publish(0, k1=10)
    snapshots = len(world.table.snapshots())
    assert world.view().prepare(an_epoch(1), None) == {}
    assert world.view().prepare(an_epoch(1), world.rows(k1=1).where("id > 5")) == {}
    assert (world.branches(), len(world.table.snapshots())) == ([], snapshots)


@pytest.mark.full
def test_rows_are_asked_for_once(world: World, spark: SparkSession) -> None:
    asked = spark.sparkContext.accumulator(0)

    def count(value: int) -> int:
        asked.add(1)
        return value

    counted = F.udf(count, "bigint", useArrow=False).asNondeterministic()
    world.publish(0, k1=10, k2=20)
    rows = world.rows(k1=11, k3=31).select("id", counted("value").alias("value"))
    handle = world.view(partitions=("id",)).prepare(an_epoch(1), rows)
    assert (handle["rows"], asked.value) == (2, 2)


@pytest.mark.full
def test_a_reader_sees_whole_epochs(world: World) -> None:
    """In each one all keys have the epoch's number."""
    world.publish(0, k1=0, k2=0, k3=0)

    def publish(epoch: int) -> None:
        handle = world.view().prepare(an_epoch(epoch), world.rows(k1=epoch, k2=epoch, k3=epoch))
        if epoch % 2:
            world.append_by_hand(**{f"k{10 * epoch}": epoch})
        persistently(lambda: world.view().commit(epoch, handle))

    def read() -> list[tuple[Any, ...]]:
        with suppress(OperationalError):  # the catalog is locked by another commit
            return world.state()
        return []

    with polled(read) as read_so_far:
        for epoch in range(1, 3):
            publish(epoch)
    seen = [rows for rows in read_so_far if rows]
    own = [{value for key, value in rows if key < 10} for rows in seen]
    assert all(len(values) == 1 for values in own)
    assert all(len({key for key, _ in rows}) == len(rows) for rows in seen)


@pytest.mark.full
def test_who_counts_rows_while_they_are_written_is_told(world: World) -> None:
    counting = Observation()
    rows = world.rows(k1=10, k2=20).observe(counting, F.count(F.lit(1)).alias("rows"))
    assert world.view().prepare(an_epoch(0), rows)["rows"] == 2
    assert counting.get == {"rows": 2}


def test_new_columns_are_null_in_what_was_there(world: World) -> None:
    world.publish(0, k1=10, k2=20)
    wider = world.rows(k2=21, k3=31).selectExpr("*", "'red' as colour")
    world.view().commit(1, world.view().prepare(an_epoch(1), wider))
    world.publish(2, k3=32)
    read = world.table.scan().to_arrow().sort_by("id").to_pylist()
    assert [row["colour"] for row in read] == [None, "red", None]
    assert world.state() == [(1, 10), (2, 21), (3, 32)]


def test_other_changes_are_refused_before_anything_is_staged(world: World) -> None:
    world.publish(0, k1=10)
    before = world.table.metadata
    changed = world.rows(k1=11).selectExpr("id", "cast(value as string) as value")
    with pytest.raises(
        SchemaError, match="its column 'value' is bigint, and the rows have 'value' as string"
    ):
        world.view().prepare(an_epoch(1), changed)
    with pytest.raises(SchemaError, match="the key's column 'id' is not among those of the rows"):
        world.view().prepare(an_epoch(1), world.rows(k1=11).drop("id"))
    with pytest.raises(SchemaError, match='by the key \\["id"\\], and the key is now \\["value"\\]'):
        world.view("value").prepare(an_epoch(1), world.rows(k1=11))
    with pytest.raises(SchemaError, match="and the key is now \\[\\]"):
        IcebergSink("rows", world.spark, world.settings.name, world.identifier, writer="view").prepare(
            an_epoch(1), world.rows(k1=11)
        )
    after = world.table.metadata
    assert (after.snapshots, after.refs, after.schemas) == (before.snapshots, before.refs, before.schemas)


@pytest.mark.full
def test_a_key_of_several_columns_one_of_which_may_be_null(world: World, spark: SparkSession) -> None:
    for epoch in range(2):
        rows = spark.sql(
            f"SELECT * FROM VALUES (1L, 'a', {epoch}L), (1L, null, {epoch}L) AS t(id, part, value)"
        )
        sink = world.view("id", "part", partitions=("part",))
        sink.commit(epoch, sink.prepare(an_epoch(epoch), rows))
    assert world.state() == [(1, 1), (1, 1)]
    assert [field.name for field in world.table.spec().fields] == ["part"]


@pytest.mark.full
def test_a_key_that_the_table_says_is_never_null(world: World) -> None:
    """Where Spark cannot know that, the rows tell."""
    sink = world.view(schema="id bigint NOT NULL, value bigint")
    sink.commit(0, sink.prepare(an_epoch(0), world.rows(k1=10).selectExpr("nullif(id, 9L) as id", "value")))
    assert world.state() == [(1, 10)]
    with pytest.raises(UnexpectedFailure, match="cannot stage epoch 1"):
        sink.prepare(an_epoch(1), world.rows(k1=10).selectExpr("nullif(id, 1L) as id", "value"))
    assert (world.state(), world.branches()) == ([(1, 10)], [])


def test_a_rewind_takes_no_rows_of_the_owner_before(world: World) -> None:
    """A person has adopted them; the sink of another materialization may have the same name."""
    for writer, rows in (("one", world.rows(k1=10)), ("two", world.rows(k2=20))):
        sink = world.view(writer=writer)
        sink.start(None, None, 1)
        sink.commit(0, sink.prepare(an_epoch(0), rows))
    for go_back in (sink.refuse_rewind, sink.rewind):
        with pytest.raises(ConfigError, match="since others have written to it"):
            go_back(-1)
    assert world.state() == [(1, 10), (2, 20)]


def test_a_rewind_deletes_no_rows_of_the_owner_before(world: World) -> None:
    """Of appended rows a column tells the epoch, and not who has written it."""
    for epoch, writer in enumerate(("on/e", "two", "two")):
        sink = world.sink(writer)
        sink.start(None, None, 1)
        rows = world.rows(k1=10 + epoch).selectExpr("*", f"{epoch}L AS epoch")
        sink.commit(epoch, sink.prepare(an_epoch(epoch), rows))
    for go_back in (sink.refuse_rewind, sink.rewind):
        with pytest.raises(ConfigError, match="since it has later epochs of on/e from before it was taken"):
            go_back(-1)
    assert world.values() == [10, 11, 12]
    sink.rewind(1)
    assert world.values() == [10, 11]


def test_a_rewind_goes_back_to_the_snapshot_of_an_epoch(world: World) -> None:
    first = world.publish(0, k1=10, k2=20)
    second = world.publish(1, k1=11)
    world.publish(3, k1=13, k3=33)
    asleep, successor = world.view(), world.view()
    asleep.start(3, None, 1)
    successor.start(3, None, 2)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        asleep.rewind(0)
    for _ in range(2):
        successor.refuse_rewind(2)
        successor.rewind(2)
        assert (world.state(), world.branches()) == ([(1, 11), (2, 20)], [])
    assert successor.committed() == {"offsets": 1}
    successor.rewind(0)
    assert (world.state(), successor.committed()) == ([(1, 10), (2, 20)], {"offsets": 0})
    # Somebody who does not know it commits what was decided once more.
    world.view().commit(1, second)
    world.view().commit(0, first)
    assert world.state() == [(1, 10), (2, 20)]
    world.publish(1, fence=2, k2=22)
    assert world.state() == [(1, 10), (2, 22)]
    assert [int(name.rpartition("_")[2]) for name in world.hidden()] == [2, 3]
    world.publish(2, fence=2, k2=23)
    assert [int(name.rpartition("_")[2]) for name in world.hidden()] == [3]
    world.publish(3, fence=2, k2=24)
    assert world.hidden() == []  # as many have come again
    successor.rewind(-1)
    assert (world.state(), successor.committed(), successor.current()) == ([], None, None)


@pytest.mark.full
def test_who_was_replaced_takes_nothing_back(world: World) -> None:
    world.publish(0, k1=10)
    asleep, successor = world.view(), world.view()
    asleep.start(0, None, 2)
    successor.start(0, None, 3)
    world.publish(1, fence=3, k1=11)
    with pytest.raises(Fenced, match="another coordinator has started since"):
        asleep.rewind(0)
    assert world.state() == [(1, 11)]
    successor.rewind(0)
    assert world.state() == [(1, 10)]


def test_who_was_stopped_in_a_commit_does_not_bring_back_what_was_rewound(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publish(0, k1=10)
    handle = world.view().prepare(an_epoch(1), world.rows(k1=11))
    swap = JavaTable.swap

    def stopped(table: JavaTable, state: State, *arguments: Any, **more: Any) -> bool:
        monkeypatch.setattr(JavaTable, "swap", swap)
        successor = world.view()
        successor.start(1, handle, 2)
        successor.commit(1, handle)
        successor.rewind(0)
        return swap(table, state, *arguments, **more)

    monkeypatch.setattr(JavaTable, "swap", stopped)
    world.view().commit(1, handle)
    assert (world.state(), world.view().committed()) == ([(1, 10)], {"offsets": 0})


@pytest.mark.full
def test_a_rewind_is_refused_where_the_snapshot_has_expired_or_others_have_written(world: World) -> None:
    for epoch in range(3):
        world.publish(epoch, k1=epoch)
    world.append_by_hand(k7=77)
    for go_back in (world.view().refuse_rewind, world.view().rewind):
        with pytest.raises(ConfigError, match="since others have written to it"):
            go_back(1)
    assert world.state() == [(1, 2), (7, 77)]
    world.view()._load().java.expireSnapshots().expireOlderThan(2**62).retainLast(1).commit()
    for go_back in (world.view().refuse_rewind, world.view().rewind):
        with pytest.raises(ConfigError, match="cannot go back to epoch 1, since its snapshot has expired"):
            go_back(1)
    world.view().refuse_rewind(2)
    assert world.state() == [(1, 2), (7, 77)]


@pytest.mark.full
def test_two_views_in_one_table(world: World) -> None:
    for epoch in range(2):
        for writer in ("ann", "bob"):
            sink = world.view(writer=writer, owned="writer")
            rows = world.rows(k1=epoch).selectExpr("*", f"'{writer}' as writer")
            sink.commit(epoch, sink.prepare(an_epoch(epoch), rows))
    assert world.state() == [(1, 1), (1, 1)]
    current = world.view(writer="bob", owned="writer").current()
    assert current is not None
    assert current.count() == 1
    world.view(writer="bob", owned="writer").rewind(-1)
    assert world.table.scan().to_arrow()["writer"].to_pylist() == ["ann"]
