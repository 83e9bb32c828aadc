"""What tests of sinks share."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.sinks.contract import Epoch

Rows = Callable[..., DataFrame]


def an_epoch(number: int, fence: int = 1) -> Epoch:
    return Epoch(number, fence, {"offsets": number}, lambda: None)


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    """Rows of an epoch: its number, and 0 to `count` - 1."""

    def make(epoch: int, count: int = 3) -> DataFrame:
        numbers = spark.range(count, numPartitions=2)
        at = "timestamp'2026-11-16 08:00:00.123456' as at"
        return numbers.selectExpr(
            f"{epoch}L as epoch", "id as `odd name.`", f"{epoch} * 10 + id as value", at
        )

    return make
