"""Maintenance and audits of a Delta table."""

from __future__ import annotations

import json
from datetime import timedelta

from headrace.sinks.delta import DeltaSink
from tests.sinks.conftest import Rows
from tests.sinks.delta.conftest import OWN, World
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
