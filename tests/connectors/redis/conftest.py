"""A separate server for tests that need more than a database of the shared one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.redis_server import RedisServer


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """Yields a server for one test file, which may change its users and settings, or freeze it."""
    with RedisServer() as server:
        yield server
