"""What tests of several packages share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import settings

from devtools.postgres_server import PostgresServer

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
