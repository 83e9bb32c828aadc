from __future__ import annotations

from pathlib import Path

from headrace.certify.feeds import CollectionFeed
from headrace.certify.lanes import Lane
from headrace.certify.scenarios import SCENARIOS
from headrace.certify.targets.files import FilesTarget
from headrace.certify.targets.sqlite import SqliteTarget
from headrace.certify.targets.target import Target
from headrace.ingest.iceberg.settings import embedded_catalog

LOADS = {"killed at sending Load", "killed at received Loaded"}


def named(folder: Path, target: Target) -> set[str]:
    """The scenarios that have a meaning where rows go to the target."""
    lane = Lane(CollectionFeed(embedded_catalog(folder)), target)
    return {scenario.name for scenario in SCENARIOS if scenario.arms(lane)}


def test_nobody_waits_for_a_load_where_nothing_is_loaded(tmp_path: Path) -> None:
    loaded = named(tmp_path, SqliteTarget(tmp_path))
    appended = named(tmp_path, FilesTarget(tmp_path.as_uri(), {}))
    assert loaded >= LOADS
    assert not appended & LOADS
    assert "killed at sending Store" in appended
