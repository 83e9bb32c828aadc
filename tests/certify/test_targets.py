"""Targets of a certification that need no server: what a pipeline writes there is what they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from headrace.certify.documents import BATCH
from headrace.certify.targets.embedded import embedded_targets
from headrace.certify.targets.iceberg import IcebergTarget
from headrace.certify.targets.target import APPEND, VIEW, Target
from headrace.ingest.iceberg.settings import embedded_catalog
from tests.certify.lanes import Lanes

pytestmark = pytest.mark.usefixtures("spark")

KINDS = {
    "sqlite": {VIEW},
    "sqlite-grpc": {VIEW},
    "webhook": {APPEND},
    "files": {APPEND},
    "parquet": {APPEND},
    "iceberg": {APPEND, VIEW},
    "delta": {APPEND, VIEW},
    "hudi": {APPEND, VIEW},
}


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    targets = embedded_targets(tmp_path / "endpoints", embedded_catalog(tmp_path / "data"))
    named: dict[str, Target] = {f"lane-{target.name}": target for target in targets}
    with ExitStack() as running:
        for target in targets:
            running.enter_context(target.running())
        yield Lanes(tmp_path, named)


@pytest.mark.timeout(600)
def test_what_was_written_is_read_and_an_old_copy_comes_back(lanes: Lanes) -> None:
    targets = lanes.targets
    assert {target.name for target in targets.values()} == set(KINDS)
    for name, target in targets.items():
        assert lanes.found(name) == dict.fromkeys(KINDS[target.name], 0), "before there is anything"
    lanes.write_and_run(writes=2)
    kept = [name for name, target in targets.items() if target.can_restore]
    assert kept == ["lane-sqlite", "lane-sqlite-grpc", "lane-parquet", "lane-delta"]
    for name in kept:
        targets[name].save(name)
    lanes.write_and_run()
    for name, target in targets.items():
        assert lanes.found(name) == dict.fromkeys(KINDS[target.name], 3 * BATCH), name
        assert target.left_over(name) == []
    (iceberg,) = (target for target in targets.values() if isinstance(target, IcebergTarget))
    table = load_catalog(lanes.catalog.name, **lanes.catalog.properties).load_table(
        iceberg.location("lane-iceberg", VIEW)
    )
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_branch(current.snapshot_id, "headrace-staged").commit()
    assert iceberg.left_over("lane-iceberg") == ["headrace_certify.lane_iceberg_view: branch headrace-staged"]
    for name in kept:
        targets[name].restore(name)
        assert lanes.found(name) == dict.fromkeys(KINDS[targets[name].name], 2 * BATCH), name
    for name, target in targets.items():
        target.remove(name)
        assert lanes.found(name) == dict.fromkeys(KINDS[target.name], 0), name
