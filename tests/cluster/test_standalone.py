"""The same file on a standalone cluster, whose workers are processes of this machine."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest

from devtools.s3_server import S3Server
from devtools.spark_cluster import SparkCluster, find_spark
from tests.cluster.cluster_scenario import REPOSITORY, ClusterScenario
from tests.cluster.struck_connector import install
from tests.pipeline.scenarios import postgres_documents

# What spark-submit is given, as docs/deploy.md says.
ENTRY = """\
from headrace.cli import main

main()
"""


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_driver_is_killed_and_spark_submit_goes_on_elsewhere(
    spark_cluster: SparkCluster, s3_server: S3Server, s3_bucket: str, tmp_path: Path, postgres_url: str
) -> None:
    """The recovery log is in a bucket, so nothing is left of the first driver's machine but that."""
    strike = install(tmp_path / "packages")
    scenario = ClusterScenario(
        tmp_path,
        "struck-postgres",
        {"url": postgres_url},
        shards=4,
        packages=strike.folder,
        state_in={"url": f"s3://{s3_bucket}/state", "options": s3_server.obstore_options()},
    )
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    scenario.write(60)
    scenario.write(60)

    # A shard of the second epoch is committed, and nobody has heard of it.
    strike.plan("StartedCommit", "wait")
    with scenario.start(scenario.run_command(spark_cluster), TMPDIR=str(here)) as driver:
        driver.wait_for(lambda: strike.struck is not None)
    assert list(here.glob("headrace-checkpoint-*/checkpoint/offsets/1"))

    strike.forget()
    scenario.write(60)
    entry = tmp_path / "headrace_submit.py"
    entry.write_text(ENTRY)
    submit = [str(find_spark() / "bin/spark-submit"), "--master", spark_cluster.master, str(entry)]
    command = [*submit, "run", str(scenario.configure()), "--once"]
    with scenario.start(command, TMPDIR=str(elsewhere)) as driver:
        assert driver.finish() == [1, 2]
    scenario.assert_exact(postgres_documents(postgres_url))
    assert not scenario.state.exists()
    assert not list(elsewhere.glob("headrace-checkpoint-*"))


def test_the_entry_for_spark_submit_is_the_documented_one() -> None:
    assert indent(ENTRY, "    ") in (REPOSITORY / "docs/deploy.md").read_text()
