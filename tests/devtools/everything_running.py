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


def hold(name: str, is_last: bool) -> None:
    """Reports that everything runs, and waits to be ended if that is requested.

    If one process runs both tests, only the last one waits, because the session of the first stays until
    then.
    """
    if folder := os.environ.get("HEADRACE_HOLD_TESTS"):
        (Path(folder) / name).touch()
        if not is_last and int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) == 1:
            return
        threading.Event().wait(2 * DEADLINE_SECONDS)
        raise AssertionError("nobody has ended the run")


def test_spark(spark: SparkSession) -> None:
    """Starts Spark's Python workers, too."""
    numbers = spark.sparkContext.parallelize(range(4), 2)
    assert numbers.map(lambda number: number + 1).sum() == 10
    hold("spark", is_last=False)


def test_servers(
    postgres_url: str,
    redis_url: str,
    s3_bucket: str,
    kafka_broker: KafkaBroker,
    rest_catalog: IcebergRestCatalog,
    tmp_path: Path,
) -> None:
    with Surroundings.in_folder(tmp_path).server():
        hold("servers", is_last=True)
