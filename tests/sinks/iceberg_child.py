"""A process that writes an epoch to an Iceberg table, and stops for good at the step that it is told.

Its arguments are JSON: the catalog, the table, the kind of sink, the step, and a folder for messages.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.sinks.contract import Epoch
from headrace.sinks.iceberg import IcebergSink
from headrace.sinks.iceberg_tables import JavaTable
from headrace.spark.catalogs import catalog_conf
from headrace.spark.lines import Needs
from headrace.spark.session import SparkSettings, make_session

STEPS = ("writing", "prepared", "publishing", "published")


def main(told: dict[str, Any]) -> None:
    folder = Path(told["folder"])

    def stop() -> None:
        (folder / "reached").touch()
        while True:  # until we are killed
            time.sleep(60)

    catalog = CatalogSettings.model_validate(told["catalog"])
    settings = SparkSettings("local[1]", {**catalog_conf(catalog), "spark.driver.memory": "700m"})
    spark = make_session(settings, "child", [Needs.ICEBERG, Needs.SQLITE])
    keys = ("id",) if told["kind"] == "view" else ()
    sink = IcebergSink("rows", spark, catalog.name, told["table"], writer="view", keys=keys)
    sink.start(0, None, 2)
    handle = sink.prepare(Epoch(1, 2, {"offsets": 1}, lambda: None), rows_of(spark, told, stop))
    (folder / "handle.json").write_text(json.dumps(handle))
    if told["step"] == "prepared":
        stop()
    swap = JavaTable.swap

    def watched(*arguments: Any, **more: Any) -> bool:
        if told["step"] == "publishing":
            stop()
        done = swap(*arguments, **more)
        stop()
        return done

    JavaTable.swap = watched  # type: ignore[method-assign]
    sink.commit(1, handle)


def rows_of(spark: SparkSession, told: dict[str, Any], stop: Callable[[], None]) -> DataFrame:
    rows = spark.sql("SELECT * FROM VALUES (1L, 11L), (3L, 31L) AS t(id, value)")
    if told["step"] != "writing":
        return rows
    reached = str(Path(told["folder"]) / "reached")

    def stuck(value: int) -> int:
        Path(reached).touch()
        time.sleep(3600)
        return value

    return rows.select("id", F.udf(stuck, "bigint", useArrow=False)("value").alias("value"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
