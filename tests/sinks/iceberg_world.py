"""A table in a catalog, sinks that write to it, and pyiceberg to read it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import UnexpectedFailure
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Place
from headrace.sinks.iceberg import IcebergSink
from headrace.spark.catalogs import catalog_conf
from tests.sinks.conftest import an_epoch


class World:
    """One table, and new sinks for it, as in new processes."""

    def __init__(self, spark: SparkSession, settings: CatalogSettings, catalog: Catalog) -> None:
        self.spark, self.settings, self.catalog = spark, settings, catalog
        self.identifier = ("some space", f"t_{uuid4().hex}")
        self.sql_name = f"{settings.name}.`some space`.{self.identifier[1]}"

    def sink(self, writer: str = "view", owned: str = "") -> IcebergSink:
        return IcebergSink(
            "dead", self.spark, self.settings.name, self.identifier, writer=writer, owned=owned
        )

    def view(self, *keys: str, writer: str = "view", name: str = "rows", **more: Any) -> IcebergSink:
        return IcebergSink(
            name,
            self.spark,
            self.settings.name,
            self.identifier,
            writer=writer,
            keys=keys or ("id",),
            **more,
        )

    def place(self, *keys: str, writer: str = "view") -> Place:
        return Place(".".join(self.identifier), writer, catalog=self.settings, keys=keys)

    def rows(self, **values: int) -> DataFrame:
        """`k1=5` is the row of key 1."""
        values_of = ", ".join(f"({key[1:]}L, {value}L)" for key, value in values.items())
        return self.spark.sql(f"SELECT * FROM VALUES {values_of} AS t(id, value)")

    def publish(self, epoch: int, fence: int = 1, **values: int) -> JsonObject:
        sink = self.view()
        handle = sink.prepare(an_epoch(epoch, fence), self.rows(**values))
        sink.commit(epoch, handle)
        return handle

    def append_by_hand(self, **values: int) -> None:
        self.rows(**values).writeTo(self.sql_name).append()

    @property
    def table(self) -> Table:
        return self.catalog.load_table(self.identifier)

    def values(self) -> list[int]:
        try:
            return sorted(self.table.scan().to_arrow()["value"].to_pylist())
        except NoSuchTableError:
            return []

    def state(self) -> list[tuple[Any, ...]]:
        """Rows by key."""
        try:
            rows = self.table.scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return sorted((row["id"], row["value"]) for row in rows)

    def branches(self) -> list[str]:
        refs = self.table.metadata.refs.items()
        return sorted(name for name, ref in refs if ref.snapshot_ref_type == "branch" and name != "main")

    def hidden(self) -> list[str]:
        """Tags of what was taken back."""
        return sorted(
            name for name, ref in self.table.metadata.refs.items() if ref.snapshot_ref_type == "tag"
        )

    def data_files(self) -> int:
        folder = self.table.location().removeprefix("file://")
        return len(list(Path(folder).rglob("*.parquet")))


def make_settings(spark: SparkSession, folder: Path) -> CatalogSettings:
    # A name of its own, since a session keeps a catalog that it has loaded.
    settings = embedded_catalog(folder).model_copy(update={"name": f"sinks_{uuid4().hex}"})
    return make_known(spark, settings)


def make_known(spark: SparkSession, settings: CatalogSettings) -> CatalogSettings:
    for key, value in catalog_conf(settings).items():
        spark.conf.set(key, value)
    return settings


@pytest.fixture(scope="module")
def settings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CatalogSettings:
    return make_settings(spark, tmp_path_factory.mktemp("catalog"))


@pytest.fixture(scope="module")
def catalog(settings: CatalogSettings) -> Catalog:
    return load_catalog(settings.name, **settings.properties)


@pytest.fixture
def world(spark: SparkSession, settings: CatalogSettings, catalog: Catalog) -> World:
    return World(spark, settings, catalog)


def persistently(call: Callable[[], None]) -> None:
    """As the coordinator does: SQLite has one writer at a time, and so has a table that threads share."""
    while True:
        try:
            return call()
        except UnexpectedFailure as error:
            if not any(
                word in str(error.__cause__) for word in ("locked", "BUSY", "CommitFailed", "not exist")
            ):
                raise
