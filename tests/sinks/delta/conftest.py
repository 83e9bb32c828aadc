"""One Delta table, in a folder and in a bucket, read by a replay of the log that is not ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from devtools.s3_server import S3Server
from headrace.model.checkpoints import JsonObject
from headrace.objects import ObjectStore
from headrace.sinks.contract import Place
from headrace.sinks.delta import DeltaSink
from tests.sinks.conftest import an_epoch
from tests.sinks.delta.replay import read_table
from tests.sinks.s3_place import s3_options

OWN = "headrace/view/orders"
"""The application that the sink's epochs are transactions of."""

Pairs = Callable[..., DataFrame]
in_both = pytest.mark.parametrize("world", ["folder", "bucket"], indirect=True)
"""Runs the test in a folder and in a bucket, even in `make test`."""


class World:
    """One table, and new sinks for it, as in new processes."""

    def __init__(self, spark: SparkSession, place: Place, store: Callable[[], ObjectStore]) -> None:
        self.spark, self.place, self._store = spark, place, store

    @property
    def store(self) -> ObjectStore:
        return self._store()

    def sink(self, **how: Any) -> DeltaSink:
        return DeltaSink("orders", replace(self.place, **how), self.spark)

    def prepare(self, number: int, rows: DataFrame | None, fence: int = 1, **how: Any) -> JsonObject:
        return self.sink(**how).prepare(an_epoch(number, fence), rows)

    def run(self, number: int, rows: DataFrame, **how: Any) -> JsonObject:
        handle = self.prepare(number, rows, **how)
        self.sink(**how).commit(number, handle)
        return handle

    def values(self) -> list[int]:
        return sorted(row["value"] for row in read_table(self.store))

    def view(self) -> dict[int, int]:
        rows = read_table(self.store)
        found = {row["key"]: row["value"] for row in rows}
        assert len(found) == len(rows)
        return found

    def paths(self, folder: str) -> list[str]:
        return self.store.list(folder, "look")

    def staged(self) -> list[str]:
        return [path for path in self.paths("_headrace") if "/staged/" in path or "/rows/" in path]

    @property
    def folder(self) -> Path:
        return Path(unquote(self.place.location.removeprefix("file://")))

    @property
    def table(self) -> DeltaTable:
        """By the library, with a look of its own."""
        if self.place.location.startswith("file://"):
            return DeltaTable(str(self.folder))
        return DeltaTable(self.place.location, storage_options=dict(self.place.options))


@pytest.fixture
def folder_world(spark: SparkSession, tmp_path: Path) -> World:
    folder = tmp_path / "some orders"
    return World(spark, Place(folder.as_uri(), "view"), lambda: ObjectStore(folder.as_uri()))


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.full)])
def world(request: pytest.FixtureRequest, spark: SparkSession) -> World:
    """A table in a folder. In `make test-full`, and for tests marked `in_both`, also one in a bucket."""
    if request.param == "folder":
        found: World = request.getfixturevalue("folder_world")
        return found
    server: S3Server = request.getfixturevalue("s3_server")
    url = f"s3://{request.getfixturevalue('s3_bucket')}/some/orders"
    place = Place(url, "view", options=s3_options(server))
    return World(spark, place, lambda: ObjectStore(url, server.obstore_options()))


@pytest.fixture
def pairs(spark: SparkSession) -> Pairs:
    """Rows of a view: a key and a value each."""

    def make(values: dict[int, int], *more: str) -> DataFrame:
        return spark.createDataFrame(list(values.items()), "key bigint, value bigint").selectExpr("*", *more)

    return make
