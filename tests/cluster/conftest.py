"""A cluster for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.spark_cluster import SparkCluster


@pytest.fixture(scope="session")
def spark_cluster() -> Iterator[SparkCluster]:
    with SparkCluster() as cluster:
        yield cluster
