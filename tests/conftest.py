"""What tests of several packages share."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from hypothesis import settings

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.redis_server import RedisServer
from devtools.s3_server import S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline: a busy machine is not a defect. By hand each run looks somewhere new, and the printed blob
# brings a failure back; in CI all runs look at the same, so that a red one is the change's own doing.
settings.register_profile("headrace", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("headrace")

_SPARKS_SOCKETS = "unclosed <socket"
"""PySpark leaves those that it collects results by to the garbage collector."""
_USING_SPARK: set[Path] = set()
"""Files of tests."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database for this test alone."""
    name = f"test_{uuid4().hex}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis_url(redis_server: RedisServer) -> str:
    """A server with nothing in it but what this test puts there."""
    with redis_server.client() as client:
        client.flushall()
    return redis_server.url


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The name of an empty bucket for this test alone."""
    name = f"test-{uuid4().hex}"
    s3_server.create_bucket(name)
    return name


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def rest_catalog(s3_server: S3Server) -> Iterator[IcebergRestCatalog]:
    """Its warehouse is in a bucket of `s3_server`."""
    s3_server.create_bucket("warehouse")
    with IcebergRestCatalog("s3://warehouse/rest", s3_server) as catalog:
        yield catalog


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With everything that a pipeline may need; catalogs are added by tests (`spark.conf.set`)."""
    # Imported here, since most tests do without it and would wait for it.
    from headrace.pipeline.session import SparkSettings, make_session
    from headrace.pipeline.spark_lines import installed_line

    conf = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    session = make_session(SparkSettings(master="local[2,4]", conf=conf), "tests", installed_line().jars)
    yield session
    session.stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_what_spark_lacks(config, items)
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.filterwarnings(f"ignore:{_SPARKS_SOCKETS}:ResourceWarning"))
            _USING_SPARK.add(item.path)


@pytest.fixture(scope="module", autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """What Spark has left goes with the module that used it, or the next one would be blamed."""
    yield
    if request.path in _USING_SPARK:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", _SPARKS_SOCKETS, ResourceWarning)
            gc.collect()


def _leave_out_what_spark_lacks(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Nothing on the default line. Hudi is not published for the other one, where it is refused."""
    from headrace.pipeline.spark_lines import Needs, installed_line

    if Needs.HUDI in installed_line().jars:
        return
    left_out = [item for item in items if "hudi" in item.nodeid]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
