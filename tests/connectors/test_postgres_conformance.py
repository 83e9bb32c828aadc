"""The conformance suite on PostgreSQL."""

from __future__ import annotations

import pytest

from headrace.testing.conformance import AuthoritativeConformance, ConnectorConformance, EndpointUnderTest
from tests.connectors.postgres_endpoint import PostgresEndpointUnderTest


class TestPostgres(ConnectorConformance, AuthoritativeConformance):
    @pytest.fixture
    def endpoint(self, postgres_url: str) -> EndpointUnderTest:
        return PostgresEndpointUnderTest(postgres_url)
