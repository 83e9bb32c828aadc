"""Two attempts at a shard's transaction at once: the late one is fenced off, and the view is right."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from devtools.spark_cluster import SparkCluster
from tests.cluster.cluster_scenario import ClusterScenario
from tests.cluster.struck_connector import Strike, install
from tests.pipeline.scenarios import postgres_documents

pytestmark = [pytest.mark.timeout(600), pytest.mark.processes, pytest.mark.full]

SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    # With two shards, as soon as one is done.
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "500ms",
    "spark.speculation.efficiency.enabled": "false",
    # The late attempt is to come to its end by itself, on a busy machine too.
    "spark.python.task.killTimeout": "60s",
}


def prepare(tmp_path: Path, postgres_url: str, what: str) -> tuple[ClusterScenario, Strike]:
    """What happens, happens when all rows of a shard are stored and none is committed."""
    strike = install(tmp_path / "packages")
    strike.plan("StartCommit", what)
    endpoint = {"url": postgres_url}
    scenario = ClusterScenario(tmp_path, "struck-postgres", endpoint, shards=2, packages=strike.folder)
    scenario.write(60)
    scenario.write(60)
    return scenario, strike


def test_a_speculative_attempt(spark_cluster: SparkCluster, tmp_path: Path, postgres_url: str) -> None:
    scenario, strike = prepare(tmp_path, postgres_url, "wait")
    scenario.conf = SPECULATION
    with scenario.start(scenario.run_command(spark_cluster)) as driver:
        assert driver.finish() == [0, 1]
    assert strike.outcome() == "Fenced"
    scenario.assert_exact(postgres_documents(postgres_url))


def test_an_executor_is_killed_and_its_python_worker_lives_on(
    spark_cluster: SparkCluster, tmp_path: Path, postgres_url: str
) -> None:
    scenario, strike = prepare(tmp_path, postgres_url, "orphan")
    scenario.write(60)
    with scenario.start(scenario.run_command(spark_cluster)) as driver:
        driver.wait_for(lambda: strike.struck is not None)
        assert strike.struck is not None
        executor = parent(parent(strike.struck))
        assert executor in spark_cluster.executors()
        os.kill(executor, signal.SIGKILL)
        assert driver.finish() == [0, 1, 2]
    assert strike.outcome() == "Fenced"
    scenario.assert_exact(postgres_documents(postgres_url))


def parent(process: int) -> int:
    status = Path(f"/proc/{process}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])
