"""Leaves some cases of the conformance suites to the full tier."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves the slow test of the largest document in process to the full tier; gRPC covers the same."""
    for item in items:
        if "test_the_largest_document[" in item.nodeid and "in process" in item.nodeid:
            item.add_marker(pytest.mark.full)
