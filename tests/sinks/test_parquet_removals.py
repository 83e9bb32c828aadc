"""An epoch of Parquet files that somebody has removed, in a folder as in a bucket."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from devtools.s3_server import S3Server
from headrace.model.checkpoints import JsonObject
from headrace.objects import ObjectStore
from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.roots import root_of
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.s3_place import s3_options


class World:
    """One place, and new sinks for it, as in new processes."""

    def __init__(self, location: str, options: Mapping[str, str]) -> None:
        self.place = Place(location, "view", options=options)

    def sink(self, **how: Any) -> ParquetSink:
        return ParquetSink("orders", replace(self.place, **how))

    def run(self, epoch: int, rows: Rows) -> JsonObject:
        handle = self.sink().prepare(an_epoch(epoch), rows(epoch))
        self.sink().commit(epoch, handle)
        return handle

    @property
    def store(self) -> ObjectStore:
        return root_of(self.place).objects()

    def remove(self, folder: str = "", ending: str = "", most: int | None = None) -> list[str]:
        paths = [path for path in sorted(self.store.list(folder, "look")) if path.endswith(ending)][:most]
        for path in paths:
            self.store.remove(path, "remove it")
        return paths


@pytest.fixture
def folder(tmp_path: Path) -> World:
    return World((tmp_path / "orders").as_uri(), {})


@pytest.fixture
def bucket(s3_server: S3Server, s3_bucket: str) -> World:
    return World(f"s3://{s3_bucket}/orders", s3_options(s3_server))


def test_an_epoch_that_was_removed_from_a_folder(folder: World, rows: Rows) -> None:
    handle = folder.run(12, rows)
    assert folder.sink().undone(12, handle) == ""
    other = "has other rows of epoch 12 than were committed, in epoch=00000000000000000012"
    assert folder.sink().undone(12, {**handle, "staged": "another"}) == other
    folder.remove()
    gone = "has no epoch 12 any more: epoch=00000000000000000012/_headrace.json is not there"
    assert folder.sink().undone(12, handle) == gone
    assert folder.sink(location=f"{folder.place.location}-new").undone(12, handle) == gone


def test_files_that_were_removed_from_a_folder(folder: World, rows: Rows) -> None:
    handle = folder.run(0, rows)
    folder.remove(ending=".parquet", most=1)
    assert folder.sink().undone(0, handle) == "has 1 of 2 files of epoch 0"
    before = {key: value for key, value in handle.items() if key != "files"}
    assert folder.sink().undone(0, before) == ""
    folder.remove(ending=".parquet")
    assert folder.sink().undone(0, before) == "has 0 of 1 files of epoch 0"


def test_what_was_removed_from_a_bucket(bucket: World, rows: Rows) -> None:
    handle = bucket.run(12, rows)
    assert bucket.sink().undone(12, handle) == ""
    (path,) = bucket.remove(f"data/{handle['staged']}", most=1)
    assert bucket.sink().undone(12, handle) == f"has no {path} of epoch 12 any more"
    manifest = "_manifests/00000000000000000012-000000.json"
    other = f"has other rows of epoch 12 than were committed, in {manifest}"
    assert bucket.sink().undone(12, {**handle, "staged": "another"}) == other
    bucket.remove("_manifests")
    assert bucket.sink().undone(12, handle) == f"has no epoch 12 any more: {manifest} is not there"


@pytest.mark.parametrize("kind", ["folder", pytest.param("bucket", marks=pytest.mark.full)])
def test_what_we_take_back_and_clean_up_removes_nothing_else(
    kind: str, request: pytest.FixtureRequest, rows: Rows
) -> None:
    world: World = request.getfixturevalue(kind)
    handles = [world.run(epoch, rows) for epoch in range(3)]
    world.sink().rewind(1)
    again = world.run(2, rows)
    list(world.sink().maintain(timedelta(0), None))
    assert world.sink().undone(1, handles[1]) == ""
    assert world.sink().undone(2, again) == ""
    assert world.sink().undone(2, handles[2]) != ""
