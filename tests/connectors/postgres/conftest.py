"""A connection of the connector's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.connectors.postgres.database import PostgresDatabase


@pytest.fixture
def database(postgres_url: str) -> Iterator[PostgresDatabase]:
    with closing(PostgresDatabase(postgres_url)) as database:
        yield database
