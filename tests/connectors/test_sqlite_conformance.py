"""The conformance suite on SQLite."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.testing.conformance import AuthoritativeConformance, ConnectorConformance
from headrace.testing.endpoint import EndpointUnderTest
from tests.connectors.sqlite_endpoint import SqliteEndpointUnderTest


class TestSqlite(ConnectorConformance, AuthoritativeConformance):
    @pytest.fixture
    def endpoint(self, tmp_path: Path) -> EndpointUnderTest:
        return SqliteEndpointUnderTest(tmp_path)
