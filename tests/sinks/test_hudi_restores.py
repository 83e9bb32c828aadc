"""An epoch that somebody has taken out of a Hudi table by restoring it to a savepoint."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.sinks.hudi_tables import HudiTable
from tests.sinks.hudi_world import World


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def test_a_table_that_was_restored_to_a_savepoint(world: World) -> None:
    first = world.append(0, k1=10)["instant"]
    table = HudiTable(world.spark, world.folder.as_uri(), ("_headrace_row",), (), {})
    with table._client("") as client:
        client.savepoint(first, "somebody", "before a test")
    handle = world.append(1, k2=20)
    assert world.sink().undone(1, handle) == ""
    with table._client("") as client:
        client.restoreToSavepoint(first)
    assert world.state() == [(1, 10)]
    said = f"was restored to before epoch 1: instant {handle['instant']} was rolled back"
    assert world.sink().undone(1, handle) == said
    shutil.rmtree(world.folder)
    assert world.sink().undone(1, handle) == "is not there any more"
