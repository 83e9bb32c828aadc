"""A process that writes an epoch to a Hudi table, and stops for good at the step that it is told.

Its argument is JSON: the table's folder, the kind of sink, the step, and a folder for messages.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.sinks.contract import Epoch, Place
from headrace.sinks.hudi import HudiSink
from headrace.sinks.hudi_tables import HudiTable
from headrace.spark.lines import Needs
from headrace.spark.session import SparkSettings, make_session

STEPS = ("writing", "prepared", "completing", "completed")
CONF = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
}


def main(told: dict[str, Any]) -> None:
    folder = Path(told["folder"])

    def stop() -> None:
        (folder / "reached").touch()
        while True:  # until we are killed
            time.sleep(60)

    spark = make_session(
        SparkSettings("local[1]", {**CONF, "spark.driver.memory": "800m"}), "child", [Needs.HUDI]
    )
    keys = ("id",) if told["kind"] == "view" else ()
    sink = HudiSink.open("rows", Place(told["table"], "view", keys=keys), spark)
    sink.start(0, None, 2)
    handle = sink.prepare(Epoch(1, 2, {"offsets": 1}, lambda: None), rows_of(spark, told))
    (folder / "handle.json").write_text(json.dumps(handle))
    if told["step"] == "prepared":
        stop()
    complete = HudiTable.complete

    def watched(*arguments: Any) -> None:
        if told["step"] == "completing":
            stop()
        complete(*arguments)
        stop()

    HudiTable.complete = watched  # type: ignore[method-assign, assignment]
    sink.commit(1, handle)


def rows_of(spark: SparkSession, told: dict[str, Any]) -> DataFrame:
    rows = spark.sql("SELECT * FROM VALUES (1L, 11L, 1L), (3L, 31L, 1L) AS t(id, value, epoch)")
    rows = rows.drop("epoch") if told["kind"] == "view" else rows
    if told["step"] != "writing":
        return rows
    reached = str(Path(told["folder"]) / "reached")

    def stuck(value: int) -> int:
        Path(reached).touch()
        time.sleep(3600)
        return value

    return rows.withColumn("value", F.udf(stuck, "bigint", useArrow=False)("value"))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
