"""Processes that are killed, frozen and replaced, or that do the same at once."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.durable import sync_path
from headrace.errors import Fenced
from headrace.model.checkpoints import JsonObject
from headrace.sinks import delta_table
from headrace.sinks.columns import Columns
from headrace.sinks.contract import Place
from headrace.sinks.delta import DeltaSink
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.delta.conftest import OWN, Pairs, World
from tests.sinks.delta.replay import live_files, log_entries, read_table
from tests.sinks.killed_sink import frozen, run_killed
from tests.sinks.together import polled, run_together
from tests.waiting import DEADLINE_SECONDS


def commit_in_a_process(place: Place, handle: JsonObject, barrier: Any, errors: Any) -> None:
    sink = DeltaSink("orders", place, None)  # type: ignore[arg-type]
    barrier.wait()
    try:
        sink.commit(0, handle)
    except Exception as error:  # noqa: BLE001 - shown by the test
        errors.put(repr(error))


@pytest.mark.parametrize(
    ("world", "keys"),
    [
        pytest.param("folder", (), id="append"),
        pytest.param("bucket", ("key",), id="view", marks=pytest.mark.full),
    ],
    indirect=["world"],
)
def test_several_processes_that_commit_at_once(world: World, pairs: Pairs, keys: tuple[str, ...]) -> None:
    handle = world.prepare(0, pairs({1: 10, 2: 20}), keys=keys)
    spawn = multiprocessing.get_context("spawn")
    barrier, errors = spawn.Barrier(3, timeout=DEADLINE_SECONDS), spawn.Queue()
    place = replace(world.place, keys=keys)
    children = [
        spawn.Process(target=commit_in_a_process, args=(place, handle, barrier, errors)) for _ in range(3)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join(DEADLINE_SECONDS)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert errors.empty(), errors.get()
    assert world.view() == {1: 10, 2: 20}
    entries = [action for entry in log_entries(world.store) for action in entry]
    assert len([one for one in entries if one.get("txn", {}).get("appId") == OWN]) == 1


@pytest.mark.full
def test_two_who_make_the_table_at_once(folder_world: World, rows: Rows) -> None:
    sinks = [folder_world.sink(writer=writer, owned="who") for writer in ("one", "other")]

    def run(sink: DeltaSink, writer: str) -> None:
        sink.commit(0, sink.prepare(an_epoch(0), rows(0).selectExpr("*", f"'{writer}' as who")))

    run_together([lambda: run(sinks[0], "one"), lambda: run(sinks[1], "other")])
    assert folder_world.values() == [0, 0, 1, 1, 2, 2]
    sinks[0].rewind(-1)
    assert {row["who"] for row in read_table(folder_world.store)} == {"other"}
    place = replace(folder_world.place, writer="other", owned="who")
    assert sum(batch.num_rows for batch in DeltaSink.read(place, ["value"], 0)) == 3


@pytest.mark.full
@pytest.mark.parametrize(
    ("world", "keys"), [("folder", ()), ("bucket", ("key",))], indirect=["world"], ids=["append", "view"]
)
def test_a_process_that_is_killed_before_the_decision_leaves_nothing(
    world: World, pairs: Pairs, keys: tuple[str, ...]
) -> None:
    place = replace(world.place, keys=keys)
    run_killed("delta", place, "after staging" if keys else "after prepare")
    assert read_table(world.store) == []
    assert world.staged() != []
    world.sink(keys=keys).start(None, None, 2)
    assert (world.paths("data"), world.staged()) == ([], [])
    world.run(0, pairs({1: 10}, "0L as epoch"), keys=keys)
    assert world.view() == {1: 10}


@pytest.mark.parametrize(
    "step", ["before log entry", pytest.param("after log entry", marks=pytest.mark.full)]
)
def test_a_process_that_is_killed_in_the_commit(world: World, rows: Rows, step: str) -> None:
    handle = world.prepare(0, rows(0))
    run_killed("delta", world.place, step, handle)
    assert world.values() == ([] if "before" in step else [0, 1, 2])
    world.sink().start(0, handle, 2)
    world.sink().commit(0, handle)
    assert (world.values(), world.staged()) == ([0, 1, 2], [])
    assert list(DeltaSink.audit(world.place, {0: 3})) == []


@pytest.mark.full
@pytest.mark.parametrize("step", ["before merge", "after merge"])
def test_a_process_that_is_killed_in_the_merge(folder_world: World, pairs: Pairs, step: str) -> None:
    handle = folder_world.prepare(0, pairs({1: 10, 2: 20}), keys=("key",))
    run_killed("delta", replace(folder_world.place, keys=("key",)), step, handle)
    assert folder_world.view() == ({} if "before" in step else {1: 10, 2: 20})
    folder_world.sink(keys=("key",)).start(0, handle, 2)
    folder_world.sink(keys=("key",)).commit(0, handle)
    assert (folder_world.view(), folder_world.staged()) == ({1: 10, 2: 20}, [])


@pytest.mark.full
def test_a_start_whose_log_was_lost_keeps_what_is_committed(folder_world: World, rows: Rows) -> None:
    handle = folder_world.prepare(0, rows(0))
    run_killed("delta", folder_world.place, "after log entry", handle)
    folder_world.sink().start(None, None, 2)
    assert (folder_world.values(), folder_world.staged()) == ([0, 1, 2], [])
    assert folder_world.sink().committed() == {"offsets": 0}


@pytest.mark.full
def test_a_start_keeps_what_is_committed_and_not_the_last(folder_world: World, rows: Rows) -> None:
    """Killed before it could say that it was done; then the log was lost, and the pipeline went on."""
    world = folder_world
    run_killed("delta", world.place, "after log entry", world.prepare(0, rows(0)))
    world.sink().start(None, None, 1)
    last = world.run(1, rows(1))
    world.sink().start(1, last, 2)
    assert (world.values(), world.staged()) == ([0, 1, 2, 10, 11, 12], [])
    assert list(DeltaSink.audit(world.place, {0: 3, 1: 3})) == []


@pytest.mark.parametrize(
    "keys", [pytest.param((), id="append", marks=pytest.mark.full), pytest.param(("key",), id="view")]
)
def test_who_was_replaced_does_not_bring_back_what_was_taken_back(
    world: World, pairs: Pairs, keys: tuple[str, ...]
) -> None:
    world.run(0, pairs({0: 0}, "0L as epoch"), keys=keys)
    handle = world.prepare(1, pairs({1: 10}, "1L as epoch"), keys=keys)
    successor = world.sink(keys=keys)
    with frozen("delta", replace(world.place, keys=keys), "merge" if keys else "log entry", handle) as thaw:
        successor.start(1, handle, 2)
        successor.commit(1, handle)
        successor.rewind(0)
        assert "EndpointError: sink orders: epoch 1 was taken back" in thaw()
    assert world.view() == {0: 0}
    successor.commit(1, successor.prepare(an_epoch(1, fence=2), pairs({1: 11}, "1L as epoch")))
    successor.commit(2, successor.prepare(an_epoch(2, fence=2), pairs({2: 20}, "2L as epoch")))
    world.sink(keys=keys).commit(1, handle)  # is behind, and does nothing
    assert world.view() == {0: 0, 1: 11, 2: 20}


@pytest.mark.full
def test_who_was_replaced_commits_what_was_decided_in_vain(world: World, pairs: Pairs) -> None:
    world.run(0, pairs({0: 0}), keys=("key",))
    handle = world.prepare(1, pairs({1: 10, 2: 20}), keys=("key",))
    successor = world.sink(keys=("key",))
    with frozen("delta", replace(world.place, keys=("key",)), "merge", handle) as thaw:
        successor.start(1, handle, 2)
        successor.commit(1, handle)
        successor.commit(2, successor.prepare(an_epoch(2, fence=2), pairs({1: 11})))
        assert thaw() == ""
    assert world.view() == {0: 0, 1: 11, 2: 20}


def test_who_was_replaced_while_it_added_a_column_commits_in_vain(
    folder_world: World, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it then reads is the table of now, to which an append fits as it would to any other."""
    world = folder_world
    world.run(0, rows(0))
    handle = world.prepare(1, rows(1).selectExpr("*", "1 as new"))
    real = delta_table.Table.add_columns

    def add_columns(table: delta_table.Table, columns: Columns) -> None:
        real(table, columns)
        monkeypatch.undo()
        successor = world.sink()
        successor.start(1, handle, 2)
        successor.commit(1, handle)
        successor.commit(2, successor.prepare(an_epoch(2, fence=2), rows(2)))
        list(successor.maintain(timedelta(hours=2), None))

    monkeypatch.setattr(delta_table.Table, "add_columns", add_columns)
    world.sink().commit(1, handle)
    assert world.values() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    assert world.table.transaction_version(OWN) == 2


def test_who_was_replaced_takes_back_nothing(world: World, rows: Rows) -> None:
    world.run(0, rows(0))
    zombie, successor = world.sink(), world.sink()
    zombie.start(0, None, 1)
    successor.start(0, None, 2)
    successor.commit(1, successor.prepare(an_epoch(1, fence=2), rows(1)))
    with pytest.raises(Fenced, match="another coordinator has started since"):
        zombie.rewind(0)
    with pytest.raises(Fenced):  # it was stopped before it came here
        world.sink().start(0, None, 1)
    assert world.values() == [0, 1, 2, 10, 11, 12]
    lost = world.sink()  # a log that was lost begins anew
    lost.start(None, None, 1)
    lost.rewind(0)
    assert world.values() == [0, 1, 2]


def test_who_was_replaced_before_there_was_a_table_takes_back_nothing(
    folder_world: World, rows: Rows
) -> None:
    zombie, successor = folder_world.sink(), folder_world.sink()
    zombie.start(None, None, 1)
    successor.start(None, None, 2)
    successor.commit(0, successor.prepare(an_epoch(0, fence=2), rows(0)))
    with pytest.raises(Fenced):
        zombie.rewind(-1)
    assert folder_world.values() == [0, 1, 2]


@pytest.mark.parametrize(
    "keys", [pytest.param((), id="append", marks=pytest.mark.full), pytest.param(("key",), id="view")]
)
def test_a_reader_sees_whole_epochs_at_every_moment(
    folder_world: World, pairs: Pairs, keys: tuple[str, ...]
) -> None:
    world = folder_world
    count = 3
    handles = [
        world.prepare(number, pairs({number: number, -1 - (0 if keys else number): number}), keys=keys)
        for number in range(count)
    ]
    with polled(world.view) as seen:
        for number, handle in enumerate(handles):
            world.sink(keys=keys).commit(number, handle)
    whole: list[dict[int, int]] = [{}]
    for number in range(count):
        whole.append({**whole[-1], number: number, -1 - (0 if keys else number): number})
    assert [found for found in seen if found not in whole] == []
    assert seen[-1] == whole[-1]


def test_everything_is_synced_when_a_commit_returns(
    folder_world: World, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []

    def sync(path: Path) -> None:
        synced.append(path)
        sync_path(path)

    monkeypatch.setattr(delta_table, "sync_path", sync)
    folder_world.run(0, pairs({1: 1}), keys=("key",))
    handle = folder_world.prepare(1, pairs({1: 2}), keys=("key",))
    root = folder_world.folder
    for _ in range(2):  # whoever committed may have died at once
        synced.clear()
        folder_world.sink(keys=("key",)).commit(1, handle)
        entry = root / "_delta_log" / f"{folder_world.table.version():020}.json"
        files = [root / path for path in live_files(folder_world.store)]
        assert {entry, entry.parent, root, *files} <= set(synced)
