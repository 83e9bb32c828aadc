"""Which rows of the conformance suites are left to the full tier."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The largest document costs a second each time; over gRPC it passes all that it does in process."""
    for item in items:
        if "test_the_largest_document[" in item.nodeid and "in process" in item.nodeid:
            item.add_marker(pytest.mark.full)
