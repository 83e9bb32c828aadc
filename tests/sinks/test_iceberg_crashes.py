"""A process is killed while it writes to an Iceberg table, and another one makes order."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.sinks.iceberg import IcebergSink
from tests.sinks.conftest import an_epoch
from tests.sinks.iceberg_child import STEPS
from tests.sinks.iceberg_world import World, catalog, settings, world
from tests.sinks.killed_child import kill_child

__all__ = ["catalog", "settings", "world"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("kind", "step"), [*(("view", step) for step in STEPS), ("append", "writing"), ("append", "publishing")]
)
def test_each_row_is_there_once(
    world: World, spark: SparkSession, tmp_path: Path, kind: str, step: str
) -> None:
    sink = a_sink(world, kind)
    sink.commit(0, sink.prepare(an_epoch(0), world.rows(k1=10, k2=20)))
    files = world.data_files()
    table = {"catalog": world.settings.to_json(), "table": world.identifier}
    handle = kill_child("tests.sinks.iceberg_child", {**table, "kind": kind, "step": step}, tmp_path)
    before = [(1, 10), (2, 20)]
    after = [(1, 11), (2, 20), (3, 31)] if kind == "view" else [(1, 10), (1, 11), (2, 20), (3, 31)]
    assert world.state() == (after if step == "published" else before)
    successor = a_sink(world, kind)
    if handle is None:
        successor.start(0, None, 3)
        assert (world.branches(), world.state()) == ([], before)
        again = successor.prepare(an_epoch(1, fence=3), world.rows(k1=11, k3=31))
        successor.commit(1, again)
    else:
        successor.start(1, handle, 3)
        successor.commit(1, handle)
    assert (world.branches(), world.state()) == ([], after)
    assert successor.committed() == {"offsets": 1}
    successor.start(1, handle, 4)
    assert world.state() == after
    # All that is left of a write that was cut off are files that no snapshot ever had.
    if step != "writing":
        assert world.data_files() <= files + 3


def a_sink(world: World, kind: str) -> IcebergSink:
    keys = ("id",) if kind == "view" else ()
    return IcebergSink("rows", world.spark, world.settings.name, world.identifier, writer="view", keys=keys)
