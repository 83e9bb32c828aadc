"""The conformance suite on Redis, for each format."""

from __future__ import annotations

import pytest

from headrace.testing.conformance import ConnectorConformance, EndpointUnderTest
from tests.connectors.redis_endpoint import RedisEndpointUnderTest


class TestRedisJson(ConnectorConformance):
    @pytest.fixture
    def endpoint(self, redis_url: str) -> EndpointUnderTest:
        return RedisEndpointUnderTest(redis_url)


class TestRedisHash(ConnectorConformance):
    @pytest.fixture
    def endpoint(self, redis_url: str) -> EndpointUnderTest:
        return RedisEndpointUnderTest(redis_url, "hash")
