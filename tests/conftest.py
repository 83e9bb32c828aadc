"""What tests of several packages share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import settings

from devtools.iceberg_rest import IcebergRestCatalog
from devtools.kafka_broker import KafkaBroker
from devtools.postgres_server import PostgresServer
from devtools.redis_server import RedisServer
from devtools.s3_server import S3Server

# No deadline: a busy machine is not a defect. By hand each run looks somewhere new, and the printed blob
# brings a failure back; in CI all runs look at the same, so that a red one is the change's own doing.
settings.register_profile("headrace", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("headrace")


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
