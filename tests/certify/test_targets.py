"""Targets of a certification read exactly what a pipeline writes to them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog import load_catalog

from devtools.kafka_broker import KafkaBroker
from devtools.s3_server import S3Server
from headrace.certify.documents import BATCH
from headrace.certify.targets.delta import DeltaTarget
from headrace.certify.targets.embedded import embedded_targets
from headrace.certify.targets.files import FilesTarget
from headrace.certify.targets.iceberg import IcebergTarget
from headrace.certify.targets.kafka import KafkaTarget
from headrace.certify.targets.parquet import ParquetTarget
from headrace.certify.targets.postgres import PostgresTarget
from headrace.certify.targets.redis import LatestRedisTarget, RedisTarget
from headrace.certify.targets.served import ServedTarget
from headrace.certify.targets.target import APPEND, VIEW
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.testing import ConnectorProcess
from tests.certify.lanes import Lanes, has_hudi
from tests.sinks.s3_place import s3_options

pytestmark = pytest.mark.usefixtures("spark")

KINDS = {
    "sqlite": {VIEW},
    "sqlite-grpc": {VIEW},
    "webhook": {APPEND},
    "files": {APPEND},
    "parquet": {APPEND},
    "iceberg": {APPEND, VIEW},
    "delta": {APPEND, VIEW},
    **({"hudi": {APPEND, VIEW}} if has_hudi() else {}),
    "postgres": {VIEW},
    "redis": {VIEW},
    "redis-latest": {VIEW},
    "kafka": {APPEND},
    "files-s3": {APPEND},
    "parquet-s3": {APPEND},
    "delta-s3": {APPEND, VIEW},
    "connector-sqlite": {VIEW},
}
VERSIONED = ("postgres", "redis", "redis-latest")
RESTORED = ("sqlite", "sqlite-grpc", "parquet", "delta", "postgres")


@pytest.fixture
def lanes(
    tmp_path: Path,
    postgres_url: str,
    redis_url: str,
    kafka_broker: KafkaBroker,
    s3_server: S3Server,
    s3_bucket: str,
) -> Iterator[Lanes]:
    """Creates a lane for each target, with names that are unique on the shared servers."""
    mark = uuid4().hex[:8]
    bucket, options = f"s3://{s3_bucket}/some/folder", s3_options(s3_server)
    with ConnectorProcess("sqlite") as served, ExitStack() as running:
        path, resource = str(tmp_path / "view.db"), {"table": "view_{lane}"}
        embedded = embedded_targets(tmp_path / "endpoints", embedded_catalog(tmp_path / "data"))
        targets = [
            *(target for target in embedded if target.name in KINDS),
            PostgresTarget({"url": postgres_url}),
            RedisTarget({"url": redis_url}),
            LatestRedisTarget({"url": redis_url}),
            KafkaTarget(kafka_broker.bootstrap, {}),
            FilesTarget(bucket, s3_server.obstore_options()),
            ParquetTarget(bucket, options),
            DeltaTarget(bucket, options),
            ServedTarget("sqlite", {"path": path}, resource, served.address),
        ]
        for target in targets:
            running.enter_context(target.running())
        yield Lanes(tmp_path, {f"{target.name}-{mark}": target for target in targets})


@pytest.mark.full  # test_decisive_faults.py reads each target too, and detects a defect in two
@pytest.mark.timeout(600)
def test_what_was_written_is_read_and_an_old_copy_comes_back(lanes: Lanes) -> None:
    """Runs all lanes in one run, and those that keep copies in a second one."""
    names = {target.name: lane for lane, target in lanes.targets.items()}
    assert names.keys() == KINDS.keys()
    for name, lane in names.items():
        target = lanes.targets[lane]
        target.check()
        assert set(target.versions()) == (
            {f"{name.partition('-')[0]} server"} if name in VERSIONED else set()
        )
        assert lanes.found(lane) == dict.fromkeys(KINDS[name], 0), "before there is anything"
    lanes.write_and_run()
    for name, lane in names.items():
        assert lanes.found(lane) == dict.fromkeys(KINDS[name], BATCH), name
        assert lanes.targets[lane].left_over(lane) == [], name
    _find_what_is_not_published(lanes, names["iceberg"])
    _copy_and_restore(lanes, names)
    for name, lane in names.items():
        lanes.targets[lane].remove(lane)
        left = BATCH if name == "connector-sqlite" else 0
        assert lanes.found(lane) == dict.fromkeys(KINDS[name], left), name


def _find_what_is_not_published(lanes: Lanes, lane: str) -> None:
    target = lanes.targets[lane]
    assert isinstance(target, IcebergTarget)
    location = target.location(lane, VIEW)
    table = load_catalog(lanes.catalog.name, **lanes.catalog.properties).load_table(location)
    current = table.current_snapshot()
    assert current is not None
    table.manage_snapshots().create_branch(current.snapshot_id, "headrace-staged").commit()
    assert target.left_over(lane) == [f"{location}: branch headrace-staged"]


def _copy_and_restore(lanes: Lanes, names: dict[str, str]) -> None:
    assert tuple(name for name, lane in names.items() if lanes.targets[lane].can_restore) == RESTORED
    kept = {name: names[name] for name in RESTORED}
    for lane in kept.values():
        lanes.targets[lane].save(lane)
    lanes.write_and_run(*kept.values())
    for name, lane in kept.items():
        assert lanes.found(lane) == dict.fromkeys(KINDS[name], 2 * BATCH), name
        lanes.targets[lane].restore(lane)
        assert lanes.found(lane) == dict.fromkeys(KINDS[name], BATCH), name
    lanes.run(kept["postgres"])
    assert lanes.found(kept["postgres"]) == {VIEW: 2 * BATCH}, "the checkpoint went back as well"
