"""An epoch that somebody has taken out of a Delta table by RESTORE, which keeps what the table says of it."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from typing import Any

import pytest

from headrace.model.checkpoints import JsonObject
from tests.sinks.conftest import Rows
from tests.sinks.delta.conftest import Pairs, World
from tests.sinks.delta.replay import log_entries

AN_HOUR = timedelta(hours=1)


def restored_to(version: int, epoch: int) -> str:
    return f"was restored to version {version}, which is older than epoch {epoch}"


def test_a_table_that_was_restored(world: World, rows: Rows) -> None:
    world.run(0, rows(0, 1))
    before = world.table.version()
    handle = world.run(1, rows(1, 1))
    after = world.table.version()
    assert world.sink().undone(1, handle) == ""
    world.table.restore(before)
    assert world.sink().committed() == {"offsets": 1}  # so says the table
    world.sink().start(1, handle, 2)  # a commit of ours on top of it
    assert (world.values(), world.sink().undone(1, handle)) == ([0], restored_to(before, 1))
    world.table.restore(after)
    assert (world.values(), world.sink().undone(1, handle)) == ([0, 10], "")
    world.table.restore(0)  # with what was restored before
    assert (world.values(), world.sink().undone(1, handle)) == ([], restored_to(0, 1))


def test_what_is_done_to_a_table_day_by_day_takes_nothing_back(folder_world: World, rows: Rows) -> None:
    world = folder_world
    for number in range(2):
        handle = world.run(number, rows(number, 2))
    before = world.table.version()
    world.table.delete("value = 10")  # of the last epoch; its file is written anew
    list(world.sink().maintain(AN_HOUR, None))
    compacted = world.table.version()
    world.table.delete("value = 0")
    assert (world.values(), world.sink().undone(1, handle)) == ([1, 11], "")
    for version, values in ((compacted, [0, 1, 11]), (before, [0, 1, 10, 11])):
        world.table.restore(version)  # to what has the epoch
        assert (world.values(), world.sink().undone(1, handle)) == (values, "")
    world.table.restore(compacted)
    world.table.restore(before - 1)
    assert (world.values(), world.sink().undone(1, handle)) == ([0, 1], restored_to(before - 1, 1))


def test_an_epoch_of_which_the_log_was_cleaned_cannot_be_told(folder_world: World, rows: Rows) -> None:
    handle = folder_world.run(0, rows(0))
    folder_world.sink().start(0, handle, 2)
    folder_world.table.create_checkpoint()
    for version in range(folder_world.table.version()):
        (folder_world.folder / "_delta_log" / f"{version:020}.json").unlink()
    assert folder_world.sink().undone(0, handle) == ""


@pytest.mark.parametrize("keys", [(), ("key",)])
def test_a_rewind_of_ours_is_no_restore(folder_world: World, pairs: Pairs, keys: tuple[str, ...]) -> None:
    world = folder_world

    def run(epoch: int) -> JsonObject:
        return world.run(epoch, pairs({1: epoch, 2: epoch}, f"{epoch}L as epoch"), keys=keys)

    handles = [run(epoch) for epoch in range(3)]
    before = world.table.version()
    world.sink(keys=keys).rewind(1)
    assert world.sink(keys=keys).undone(1, handles[1]) == ""
    again = run(2)
    assert world.sink(keys=keys).undone(2, again) == ""
    world.table.restore(before)  # which has another epoch 2
    assert world.sink(keys=keys).undone(2, again) == restored_to(before, 2)


def test_sparks_restore_to_a_time(folder_world: World, rows: Rows) -> None:
    world = folder_world
    world.run(0, rows(0, 1))
    handle = world.run(1, rows(1, 1))
    added = [action["add"]["path"] for action in log_entries(world.store)[-1] if "add" in action]
    given = {"version": None, "timestamp": "2026-11-16 08:00:00"}
    restore: list[dict[str, Any]] = [
        {"commitInfo": {"operation": "RESTORE", "operationParameters": given}},
        *({"remove": {"path": path, "dataChange": True}} for path in added),
    ]
    lines = "".join(f"{json.dumps(action)}\n" for action in restore)
    (world.folder / "_delta_log" / f"{world.table.version() + 1:020}.json").write_text(lines)
    said = "was restored to timestamp 2026-11-16 08:00:00, which is older than epoch 1"
    assert (world.values(), world.sink().undone(1, handle)) == ([0], said)


def test_a_table_that_is_gone(folder_world: World, rows: Rows) -> None:
    handle = folder_world.run(0, rows(0, 1))
    shutil.rmtree(folder_world.folder)
    assert folder_world.sink().undone(0, handle) == "is not there any more"
