"""A Hudi table, sinks that write to it, and readers that are not Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
from hudi import HudiTableBuilder
from pyspark.sql import DataFrame, SparkSession

from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Place
from headrace.sinks.hudi import HudiSink
from tests.sinks.conftest import an_epoch


class World:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder / "table"

    def place(self, *keys: str, **more: Any) -> Place:
        return Place(self.folder.as_uri(), more.pop("writer", "view"), keys=keys, **more)

    def sink(self, *keys: str, **more: Any) -> HudiSink:
        return HudiSink.open("rows", self.place(*keys, **more), self.spark)

    def rows(self, epoch: int | None = None, **values: int) -> DataFrame:
        """`k1=5` is the row of key 1."""
        listed = ", ".join(f"({key[1:]}L, {value}L)" for key, value in values.items())
        rows = self.spark.sql(f"SELECT * FROM VALUES {listed} AS t(id, value)")
        return rows if epoch is None else rows.selectExpr("*", f"{epoch}L as epoch")

    def publish(self, epoch: int, fence: int = 1, **values: int) -> JsonObject:
        handle = self.sink("id").prepare(an_epoch(epoch, fence), self.rows(**values))
        self.sink("id").commit(epoch, handle)
        return handle

    def append(self, epoch: int, fence: int = 1, **values: int) -> JsonObject:
        handle = self.sink().prepare(an_epoch(epoch, fence), self.rows(epoch, **values))
        self.sink().commit(epoch, handle)
        return handle

    def state(self) -> list[tuple[int, int]]:
        """As two readers see it, who have nothing in common."""
        by_package, by_files = self._by_package(), self._by_files()
        assert by_package == by_files
        return by_package

    def _by_package(self) -> list[tuple[int, int]]:
        table = HudiTableBuilder.from_base_uri(str(self.folder)).build()
        if not table.get_timeline().get_completed_commits():
            return []
        rows = [row for batch in table.read() for row in batch.to_pylist()]
        return sorted((row["id"], row["value"]) for row in rows)

    def _by_files(self) -> list[tuple[int, int]]:
        """The last file of each file group that belongs to a completed instant."""
        completed = {name.split("_")[0] for name in self.timeline() if name.endswith(".commit")}
        first = min(completed, default="")
        latest: dict[str, tuple[str, str]] = {}
        for path in self._files():
            group, _, instant = path.stem.split("_")
            if instant in completed or instant < first:
                latest[group] = max(latest.get(group, ("", "")), (instant, str(path)))
        files = [path for _, path in latest.values()]
        if not files:
            return []
        found = duckdb.execute(f"SELECT id, value FROM read_parquet({files}, union_by_name=true)").fetchall()
        return sorted((int(key), int(value)) for key, value in found)

    def timeline(self) -> list[str]:
        folder = self.folder / ".hoodie" / "timeline"
        return sorted(path.name for path in folder.iterdir() if path.is_file() and path.name[0] != ".")

    def pending(self) -> set[str]:
        completed = {name.split("_")[0] for name in self.timeline() if name.endswith(".commit")}
        started = {name.split(".")[0] for name in self.timeline() if ".commit.requested" in name}
        return started - completed

    def data_files(self) -> int:
        return len(self._files())

    def _files(self) -> list[Path]:
        """Hudi's own archive is Parquet as well."""
        return [path for path in self.folder.rglob("*.parquet") if ".hoodie" not in path.parts]
