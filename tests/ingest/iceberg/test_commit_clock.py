"""Commits while the clock is set: Iceberg takes no snapshot that is older than the last.

A catalog in Java takes none that is later than its own clock, either. One in SQLite takes all, but then Java
does not read the table any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from devtools.iceberg_rest import IcebergRestCatalog
from headrace.ingest.iceberg import CatalogSettings
from tests.ingest.iceberg.scenario import Scenario

DAY = 86_400


@pytest.fixture(params=["sqlite", pytest.param("rest", marks=pytest.mark.processes)])
def catalog_settings(request: pytest.FixtureRequest, catalog_settings: CatalogSettings) -> CatalogSettings:
    if request.param == "sqlite":
        return catalog_settings
    rest: IcebergRestCatalog = request.getfixturevalue("rest_catalog")
    return CatalogSettings(properties=rest.iceberg_properties(), namespace=f"clock_{uuid4().hex}")


@pytest.fixture
def step(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the clock to so many seconds ahead of the right time."""
    right = time.time

    def set_clock(seconds: int) -> None:
        monkeypatch.setattr(time, "time", lambda: right() + seconds)

    return set_clock


def times(table: Table) -> list[int]:
    return [entry.timestamp_ms for entry in table.metadata.snapshot_log]


def assert_in_order(table: Table) -> None:
    assert all(earlier < later for earlier, later in pairwise(times(table)))
    assert table.metadata.last_updated_ms >= times(table)[-1]


def test_a_clock_that_is_set_holds_up_no_commit(scenario: Scenario, step: Callable[[int], None]) -> None:
    for seconds in (0, 30 * DAY, 0, -400 * DAY, 0):
        step(seconds)
        scenario.write_segment()
        scenario.commit()
    scenario.assert_exactly_once()
    assert_in_order(scenario.table())


def test_a_clock_that_is_right_again_is_what_a_snapshot_is_dated_by(
    scenario: Scenario, step: Callable[[int], None]
) -> None:
    for seconds in (0, -3600, 0):
        step(seconds)
        scenario.write_segment()
        before = int(time.time() * 1000)
        scenario.commit()
    table = scenario.table()
    assert_in_order(table)
    assert times(table)[-1] >= before
