"""A few tests with Spark and every server, which `python -m devtools.leftovers` runs and ends.

The file name hides them from pytest, because they prove nothing by themselves.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from pyspark.sql import SparkSession

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.kafka_broker import KafkaBroker
from headrace.certify.ingest.surroundings import Surroundings
from tests.waiting import DEADLINE_SECONDS


def report(name: str) -> bool:
    """Reports that something runs; returns whether the run is to be ended while it does."""
    folder = os.environ.get("HEADRACE_HOLD_TESTS")
    if folder:
        (Path(folder) / name).touch()
    return folder is not None


def test_spark(spark: SparkSession) -> None:
    """Starts Spark's Python workers, too."""
    numbers = spark.sparkContext.parallelize(range(4), 2)
    assert numbers.map(lambda number: number + 1).sum() == 10
    report("spark")  # one process runs both tests, so the session stays while the next one waits


def test_servers(
    postgres_url: str,
    redis_url: str,
    s3_bucket: str,
    kafka_broker: KafkaBroker,
    rest_catalog: IcebergRestCatalog,
    tmp_path: Path,
) -> None:
    with Surroundings.in_folder(tmp_path).server():
        if report("servers"):
            threading.Event().wait(2 * DEADLINE_SECONDS)
            raise AssertionError("nobody has ended the run")
