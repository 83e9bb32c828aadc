"""A Python worker is killed in the middle of a transaction: Spark tries again, and the view is right."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.cluster.struck_connector import Strike, install
from tests.pipeline.scenario import Scenario
from tests.pipeline.scenarios import sqlite_documents


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Strike:
    # Once for all: Spark keeps the workers that it has started for a path.
    return install(tmp_path_factory.mktemp("packages"))


@pytest.fixture
def strike(installed: Strike, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Strike:
    """With the connector known to this process and to Python's workers."""
    monkeypatch.syspath_prepend(installed.folder)
    monkeypatch.setitem(spark.sparkContext.environment, "PYTHONPATH", str(installed.folder))
    return installed


@pytest.mark.parametrize(
    ("at", "is_replayed"),
    [
        pytest.param("Flush", False, id="after Load", marks=pytest.mark.full),
        pytest.param("StartCommit", False, id="after Store", marks=pytest.mark.full),
        pytest.param("StartedCommit", True, id="after the endpoint has committed"),
    ],
)
def test_a_worker_is_killed(strike: Strike, tmp_path: Path, at: str, is_replayed: bool) -> None:
    path = tmp_path / "view.db"
    scenario = Scenario(tmp_path, "struck-sqlite", {"path": str(path)}, shards=2)
    scenario.write(60)
    scenario.write(60)
    strike.plan(at, "kill")
    first, second = scenario.run().epochs
    assert strike.struck not in (None, os.getpid())
    scenario.assert_exact(sqlite_documents(path))
    assert (first.is_replayed, second.is_replayed) == (False, is_replayed)
