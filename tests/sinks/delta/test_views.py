"""A Delta table that has one row for each key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from headrace.errors import EndpointError
from headrace.sinks.delta import DeltaSink
from tests.sinks.delta.conftest import Pairs, World, in_both


def test_a_rewind_restores_a_view(world: World, pairs: Pairs) -> None:
    for number, values in enumerate(({1: 10}, {1: 11, 2: 20}, {2: 21, 3: 30})):
        world.run(number, pairs(values), keys=("key",))
    assert world.view() == {1: 11, 2: 21, 3: 30}
    world.sink(keys=("key",)).refuse_rewind(1)
    assert world.view() == {1: 11, 2: 21, 3: 30}
    world.sink(keys=("key",)).rewind(1)
    assert world.view() == {1: 11, 2: 20}
    world.run(2, pairs({2: 22}), keys=("key",))
    world.run(3, pairs({2: 23}), keys=("key",))
    world.sink(keys=("key",)).rewind(2)
    assert world.view() == {1: 11, 2: 22}
    assert world.sink().committed() == {"offsets": 2}
    world.sink(keys=("key",)).rewind(-1)
    assert world.view() == {}


def test_a_view_whose_history_is_gone_is_not_restored(folder_world: World, pairs: Pairs) -> None:
    for number in range(3):
        folder_world.run(number, pairs({1: number}), keys=("key",))
    folder_world.table.create_checkpoint()
    log = folder_world.folder / "_delta_log"
    for version in range(folder_world.table.version()):
        (log / f"{version:020}.json").unlink()
    sink = folder_world.sink(keys=("key",))
    for go_back in (sink.refuse_rewind, sink.rewind):
        with pytest.raises(
            EndpointError, match="does not go back to epoch 1: restore the endpoint as it was"
        ):
            go_back(1)


@pytest.mark.full
def test_a_view_whose_files_are_gone_is_not_restored(folder_world: World, pairs: Pairs) -> None:
    for number in range(3):
        folder_world.run(number, pairs({1: number}), keys=("key",))
    folder_world.table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    sink = folder_world.sink(keys=("key",))
    for go_back in (sink.refuse_rewind, sink.rewind):
        with pytest.raises(EndpointError, match=r"cannot go back to epoch 1, which is its version \d"):
            go_back(1)
    assert folder_world.view() == {1: 2}


@in_both
def test_a_view_has_one_row_for_each_key(world: World, pairs: Pairs) -> None:
    sink = world.sink(keys=("key",))
    assert sink.current() is None
    first = world.run(0, pairs({1: 10, 2: 20}, "'x' as note"), keys=("key",))
    second = world.prepare(1, pairs({2: 21, 3: 30}), keys=("key",))
    assert world.view() == {1: 10, 2: 20}
    for _ in range(2):
        sink.commit(1, second)
        sink.commit(0, first)
        assert world.view() == {1: 10, 2: 21, 3: 30}
    current = sink.current()
    assert current is not None
    # All of a row is replaced, also what the new one does not have.
    assert sorted(map(tuple, current.collect())) == [(1, 10, "x"), (2, 21, None), (3, 30, None)]
    assert list(DeltaSink.audit(replace(world.place, keys=("key",)), {})) == []


def test_a_view_of_partitions_and_null_keys(world: World, spark: SparkSession) -> None:
    how = {"keys": ("key", "day"), "partitions": ("day", "part")}
    make = "select * from values {} as t(key, day, part, value)"
    rows = "(1L, date'2026-11-16', 'a b/ü', 10L), (null, date'2026-11-16', null, 20L)"
    world.run(0, spark.sql(make.format(rows)), **how)
    changed = "(1L, date'2026-11-16', 'c', 11L), (null, date'2026-11-16', 'd', 21L)"
    current = world.sink(**how).current()
    assert current is not None
    assert sorted((row["part"] or "", row["value"]) for row in current.collect()) == [("", 20), ("a b/ü", 10)]
    world.run(1, spark.sql(make.format(changed)), **how)
    again = world.sink(**how).current()
    assert again is not None
    found = sorted((row["part"], str(row["day"]), row["key"], row["value"]) for row in again.collect())
    assert found == [("c", "2026-11-16", 1, 11), ("d", "2026-11-16", None, 21)]


def test_a_merge_is_done_again_when_somebody_compacts_meanwhile(
    world: World, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        world.run(number, pairs({number: number}), keys=("key",))
    handle = world.prepare(3, pairs({0: 30, 3: 3}), keys=("key",))
    sink = world.sink(keys=("key",))
    stale = sink._tables.must_load()
    assert world.table.optimize.compact()["numFilesRemoved"] == 3
    fresh, tables = sink._tables.must_load, iter([stale])
    monkeypatch.setattr(sink._tables, "must_load", lambda: next(tables, None) or fresh())
    sink.commit(3, handle)
    assert world.view() == {0: 30, 1: 1, 2: 2, 3: 3}
