"""A server for what a database of the shared one is not enough for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from devtools.redis_server import RedisServer


@pytest.fixture(scope="module")
def own_server() -> Iterator[RedisServer]:
    """One that the tests of a file have for themselves, to change its users and settings, or to freeze it."""
    with RedisServer() as server:
        yield server
