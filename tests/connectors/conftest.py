"""Leaves some cases of the conformance suites to the full tier."""

from __future__ import annotations

import pytest

# SQLite, files and webhook run the whole suite over gRPC; what it adds is the same for every connector.
_SLOW_OVER_GRPC = ("test_postgres_conformance.py", "test_redis_conformance.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _has_another_proof(item.nodeid):
            item.add_marker(pytest.mark.full)


def _has_another_proof(test: str) -> bool:
    if "test_the_largest_document[" in test:
        return "in process" in test
    return "[grpc" in test and any(file in test for file in _SLOW_OVER_GRPC)
