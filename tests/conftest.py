"""What tests of several packages share."""

from __future__ import annotations

import gc
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import pytest
from hypothesis import settings

from devtools import pytest_reports
from devtools.iceberg_rest import IcebergRestCatalog
from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.pytest_reports import SERVERS_USED
from devtools.pytest_scheduling import SPARK, Priority, Scheduling, put_in_order, report_spark_files
from devtools.redis_server import RedisServer
from devtools.run_guard import RunGuard
from devtools.s3_server import S3Server
from devtools.server import starts
from devtools.shared_servers import REDIS_DATABASES, RemoteServers, ServerHost, Servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# No deadline: a busy machine is not a defect. By hand each run looks somewhere new, and the printed blob
# brings a failure back; in CI all runs look at the same, so that a red one is the change's own doing.
settings.register_profile("headrace", deadline=None, derandomize="CI" in os.environ, print_blob=True)
# For `make test`, which tries many properties in ten minutes.
settings.register_profile("short", settings.get_profile("headrace"), max_examples=25)
settings.load_profile("headrace")

_GUARD = pytest.StashKey[RunGuard]()
_HOST = pytest.StashKey[ServerHost]()
_SERVERS = pytest.StashKey[Servers]()
_ON_SPARK = "on-spark.json"
"""File in which the workers list the test files on the Spark session."""
_SPARKS_SOCKETS = "unclosed <socket"
"""PySpark leaves those that it collects results by to the garbage collector."""
_USING_SPARK: set[Path] = set()
"""Files of tests."""


def pytest_configure(config: pytest.Config) -> None:
    """Hosts the run's servers in its first process; the workers request them from it."""
    if given := getattr(config, "workerinput", None):
        config.stash[_SERVERS] = RemoteServers(given["servers"], given["servers_key"])
    else:
        config.stash[_SERVERS] = config.stash[_HOST] = host = ServerHost()
        config.stash[_GUARD] = RunGuard(host.folder)
    config.stash[SERVERS_USED] = {}
    config.pluginmanager.register(pytest_reports, "headrace-reports")
    config.pluginmanager.register(Priority(_USING_SPARK), "headrace-priority")


def pytest_configure_node(node: Any) -> None:
    host = node.config.stash[_HOST]
    on_spark = str(host.folder / _ON_SPARK)
    node.workerinput |= {"servers": host.address, "servers_key": host.key, "on_spark": on_spark}


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling:
    return Scheduling(config, log, config.stash[_HOST].folder / _ON_SPARK)


def pytest_unconfigure(config: pytest.Config) -> None:
    if host := config.stash.get(_HOST, None):
        host.__exit__(None, None, None)
        config.stash[_GUARD].release()


GetServer = Callable[[str], Any]


@pytest.fixture(scope="session")
def shared_server(request: pytest.FixtureRequest) -> GetServer:
    """Returns a function that gets the shared server of a kind. Each test uses its own names on it."""
    stash = request.config.stash
    is_fast = "not processes" in request.config.option.markexpr

    def get(kind: str) -> Any:
        assert not is_fast, f"mark this test `processes`: `make test-fast` has no server ({kind})"
        server = stash[SERVERS_USED][kind] = stash[_SERVERS].get(kind)
        return server

    return get


@pytest.fixture(scope="session")
def postgres_server(shared_server: GetServer) -> Iterator[PostgresServer]:
    server: PostgresServer = shared_server("postgres")
    yield server
    server.disconnect()


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database for this test alone."""
    name = f"test_{uuid4().hex}"
    yield postgres_server.create_database(name)
    postgres_server.drop_database(name)


@pytest.fixture(scope="session")
def redis_server(shared_server: GetServer) -> RedisServer:
    """For tests that inspect the server itself; all others use `redis_url`."""
    return cast(RedisServer, shared_server("redis"))


@pytest.fixture
def redis_url(redis_server: RedisServer) -> Iterator[str]:
    """Yields the URL of a logical database that no other test uses."""
    with redis_server.client() as client:
        number = int(client.incr("databases given to tests"))  # in database 0, which no test gets
        assert number < REDIS_DATABASES, "raise REDIS_DATABASES"
        yield redis_server.url.removesuffix("/0") + f"/{number}"
        client.select(number)
        client.flushdb()


@pytest.fixture(scope="session")
def s3_server(shared_server: GetServer) -> S3Server:
    return cast(S3Server, shared_server("s3"))


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The name of an empty bucket for this test alone."""
    name = f"test-{uuid4().hex}"
    s3_server.create_bucket(name)
    return name


@pytest.fixture(scope="session")
def kafka_broker(shared_server: GetServer) -> KafkaBroker:
    return cast(KafkaBroker, shared_server("kafka"))


@pytest.fixture(scope="session")
def rest_catalog(shared_server: GetServer) -> IcebergRestCatalog:
    """Its warehouse is in a bucket of `s3_server`."""
    return cast(IcebergRestCatalog, shared_server("rest"))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """With everything that a pipeline may need; catalogs are added by tests (`spark.conf.set`)."""
    # Imported here, since most tests do without it and would wait for it.
    from headrace.spark.lines import installed_line
    from headrace.spark.session import SparkSettings, make_session

    conf = {
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("spark")),
        "spark.driver.memory": "1g",
        # The C2 compiler takes half of the JVM's CPU time and does not pay off for code that runs once.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.shuffle.partitions": "2",
    }
    began = time.monotonic()
    session = make_session(SparkSettings(master="local[2,4]", conf=conf), "tests", installed_line().jars)
    starts.append(("Spark session", time.monotonic() - began))
    yield session
    session.stop()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _leave_out_what_spark_lacks(config, items)
    for item in items:
        _mark(item)
    on_spark = put_in_order(items)
    if given := getattr(config, "workerinput", None):
        report_spark_files(on_spark, Path(given["on_spark"]))


def _mark(item: pytest.Item) -> None:
    """Adds the markers that follow from the fixtures a test uses."""
    needs = set(getattr(item, "fixturenames", ()))
    if needs & {SPARK, "shared_server"}:
        item.add_marker("processes")
    if SPARK in needs:
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
    from headrace.spark.lines import Needs, installed_line

    if Needs.HUDI in installed_line().jars:
        return
    left_out = [item for item in items if "hudi" in item.nodeid]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]
