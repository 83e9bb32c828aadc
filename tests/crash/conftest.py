"""Each crash test runs on every authoritative endpoint of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing.conformance import EndpointUnderTest
from tests.connectors.postgres_endpoint import PostgresEndpointUnderTest
from tests.connectors.sqlite_endpoint import SqliteEndpointUnderTest


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.processes)])
def endpoint(request: pytest.FixtureRequest, tmp_path: Path) -> EndpointUnderTest:
    if request.param == "sqlite":
        return SqliteEndpointUnderTest(tmp_path)
    return PostgresEndpointUnderTest(request.getfixturevalue("postgres_url"))
