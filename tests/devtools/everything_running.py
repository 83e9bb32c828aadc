"""A small part of the tests, with Spark and every server: what `python -m devtools.leftovers` runs and ends.

Its name hides it from pytest, since it proves nothing by itself.
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
    """Says that everything runs, and waits to be ended if that is asked for.

    The last test alone does if one process runs both, since the first one's session stays until then.
    """
    if folder := os.environ.get("HEADRACE_HOLD_TESTS"):
        (Path(folder) / name).touch()
        if not is_last and int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) == 1:
            return
        threading.Event().wait(2 * DEADLINE_SECONDS)
        raise AssertionError("nobody has ended the run")


def test_spark(spark: SparkSession) -> None:
    """Workers of Python's run too."""
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
