"""What a stream reads is told by its source, whatever its columns and paths are called."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.ingest.iceberg.tables import Tables
from headrace.pipeline.library import UNKNOWN, format_of
from headrace.spark.catalogs import catalog_conf


def test_a_source_is_known_by_its_format(spark: SparkSession, tmp_path: Path) -> None:
    rate = spark.readStream.format("rate").load()
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "rate"}
    kafka = spark.readStream.format("kafka").options(**options).load()
    (tmp_path / "delta").mkdir()
    files = spark.readStream.schema("kafka string").json(str(tmp_path / "delta"))
    assert format_of(spark.range(1)) == "batch"
    assert format_of(rate.selectExpr("value as iceberg")) == "rate"
    assert format_of(kafka.selectExpr("topic as delta").where("delta = 'rate'")) == "kafka"
    assert format_of(files) == "json"
    assert format_of(rate.join(spark.range(1), rate["value"] == 0)) == "rate"
    assert format_of(rate.selectExpr("value").union(kafka.selectExpr("offset"))) == UNKNOWN


def test_a_table_is_known_by_what_it_is(spark: SparkSession, tmp_path: Path) -> None:
    catalog = embedded_catalog(tmp_path).model_copy(update={"name": f"formats_{uuid4().hex}"})
    Tables(catalog).create("kafka", pa.schema([("id", pa.int64())]), ("/id",), "test")
    for key, value in catalog_conf(catalog).items():
        spark.conf.set(key, value)
    name = ".".join((catalog.name, *catalog.identifier("kafka")))
    assert format_of(spark.readStream.table(name)) == "iceberg"
    assert format_of(spark.readStream.format("iceberg").load(name)) == "iceberg"
