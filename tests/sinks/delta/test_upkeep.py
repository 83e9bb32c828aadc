"""Maintenance and audits of a Delta table."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from datetime import timedelta

import pytest

from headrace.sinks.delta import DeltaSink
from headrace.sinks.delta_checkpoints import Checkpoints
from headrace.sinks.staging import Attempt
from tests.sinks.conftest import Rows
from tests.sinks.delta.conftest import OWN, Pairs, World
from tests.sinks.delta.replay import live_files


def test_maintenance_leaves_what_is_needed(world: World, rows: Rows) -> None:
    for number in range(3):
        world.run(number, rows(number))
    kept = world.prepare(3, rows(3))
    staged = world.prepare(3, rows(3))
    files = len(live_files(world.store))
    told = list(world.sink().maintain(timedelta(hours=2), kept))
    assert any(f"wrote {files} small files" in sentence for sentence in told)
    assert world.table.transaction_version(OWN) == 2
    assert world.values() == [0, 1, 2, 10, 11, 12, 20, 21, 22]
    before = len(world.paths("data"))
    told = list(world.sink().maintain(timedelta(0), kept))
    assert any(f"removed {files} files" in sentence for sentence in told)
    assert len(world.paths("data")) == before - files
    for handle in (kept, staged):
        assert [path for path in world.paths("data") if handle["staged"] in path]
    world.sink().commit(3, kept)
    assert world.values() == [0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32]
    world.sink().rewind(1)
    assert world.values() == [0, 1, 2, 10, 11, 12]


def test_an_audit_says_what_is_wrong(folder_world: World, rows: Rows) -> None:
    folder_world.run(0, rows(0))
    folder_world.run(1, rows(1, 1))
    assert list(DeltaSink.audit(folder_world.place, {0: 3, 1: 1})) == []
    assert list(DeltaSink.audit(folder_world.place, {0: 3, 1: 2})) == [
        "epoch 1 was committed with 2 rows, and 1 are there"
    ]
    first = next(iter(live_files(folder_world.store).values()))
    log = folder_world.folder / "_delta_log"
    again = log / f"{folder_world.table.version() + 1:020}.json"
    again.write_text(json.dumps({"add": first}))
    found = list(DeltaSink.audit(folder_world.place, {}))
    assert any(f"{first['path']} is added twice" in sentence for sentence in found)
    again.unlink()
    folder_world.store.remove(first["path"], "break it")
    found = list(DeltaSink.audit(folder_world.place, {0: 3}))
    assert found == [f"the log names {first['path']}, which is not there"]


def test_an_audit_of_a_table_that_is_gone_or_behind(folder_world: World, pairs: Pairs) -> None:
    place = replace(folder_world.place, keys=("key",))
    assert list(DeltaSink.audit(place, {0: 0})) == []
    for number in range(3):
        folder_world.run(number, pairs({1: number}), keys=("key",))
    assert list(DeltaSink.audit(place, {0: 1, 1: 1, 2: 1, 3: 0})) == []
    behind = "epoch 4 was committed, and the table says that epoch 2 is its last"
    assert list(DeltaSink.audit(place, {2: 1, 4: 1})) == [behind]
    assert list(DeltaSink.audit(place, {0: 1, 1: 1}, lambda: 2)) == []
    assert list(DeltaSink.audit(place, {0: 1, 1: 1}, lambda: 1)) == [
        "the table says that epoch 2 is its last, which was never decided"
    ]
    list(folder_world.sink(keys=("key",)).maintain(timedelta(0), None))
    log = folder_world.folder / "_delta_log"
    for version in range(folder_world.table.version()):
        (log / f"{version:020}.json").unlink(missing_ok=True)
    assert list(DeltaSink.audit(place, {2: 1})) == []  # by the checkpoint of the log
    assert list(DeltaSink.audit(place, {2: 1, 4: 1})) == [behind]
    shutil.rmtree(folder_world.folder)
    for one in (place, folder_world.place):
        (found,) = DeltaSink.audit(one, {0: 1, 1: 1, 2: 0})
        assert found == f"there is no Delta table in {place.location}, and it has had epochs up to 1"


@pytest.mark.full
def test_an_audit_of_a_table_that_went_back(folder_world: World, rows: Rows) -> None:
    for number in range(2):
        folder_world.run(number, rows(number))
    folder_world.sink().rewind(0)
    assert list(DeltaSink.audit(folder_world.place, {0: 3})) == []
    assert list(DeltaSink.audit(folder_world.place, {0: 3, 1: 3})) == [
        "epoch 1 was committed, and the table says that epoch 0 is its last"
    ]


def test_checkpoints_do_not_pile_up_whichever_epochs_have_rows(folder_world: World) -> None:
    checkpoints = Checkpoints(folder_world.store, "checkpoints")
    attempts = [Attempt(number, 1, number << 22) for number in range(1, 1000, 4)]  # no multiple of 20
    for attempt in attempts:
        checkpoints.write(attempt, {"offsets": attempt.epoch})
        checkpoints.prune(attempt.epoch)
    left = len(folder_world.paths("checkpoints"))
    assert 100 <= left <= 120
    assert checkpoints.read(attempts[-100].id) == {"offsets": attempts[-100].epoch}
    assert checkpoints.last(attempts[-50].epoch + 1) == attempts[-50].id


@pytest.mark.full
def test_a_view_leaves_no_empty_folders(folder_world: World, pairs: Pairs) -> None:
    for number in range(2):
        folder_world.run(number, pairs({1: number}), keys=("key",))
    folder_world.sink(keys=("key",)).abort(2, folder_world.prepare(2, pairs({1: 2}), keys=("key",)))
    assert list((folder_world.folder / "_headrace").glob("*/rows/*")) == []
    folder_world.prepare(2, pairs({1: 2}), keys=("key",))
    folder_world.sink(keys=("key",)).start(None, None, 2)
    assert list((folder_world.folder / "_headrace").glob("*/rows/*")) == []
