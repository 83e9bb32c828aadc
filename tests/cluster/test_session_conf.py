"""What a session is told, from the file, the command line and spark-submit."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.spark.lines import LINES, Needs
from headrace.spark.session import SparkSettings, session_conf

CLUSTER = "spark://spark.example:7077"
JARS = [Path("/jars/iceberg.jar"), Path("/jars/sqlite.jar")]


def conf(
    settings: SparkSettings, submitted: dict[str, str] | None = None, jars: list[Path] = JARS
) -> dict[str, str]:
    return session_conf(settings, submitted or {}, jars, {Needs.ICEBERG}, "file:/quiet")


@pytest.mark.parametrize(
    ("given", "submitted", "chosen"),
    [
        ("", "", "local[*,4]"),
        ("local[2]", "", "local[2]"),
        (CLUSTER, "", CLUSTER),
        ("", "yarn", "yarn"),
        ("local[2]", "yarn", "yarn"),
        # What spark-submit says when it was told nothing.
        (CLUSTER, "local[*]", CLUSTER),
        ("", "local[*]", "local[*]"),
    ],
)
def test_the_master(monkeypatch: pytest.MonkeyPatch, given: str, submitted: str, chosen: str) -> None:
    monkeypatch.delenv("MASTER", raising=False)
    told = {"spark.master": submitted} if submitted else {}
    assert conf(SparkSettings(master=given), told)["spark.master"] == chosen
    assert conf(SparkSettings(conf={"spark.master": given} if given else {}), told)["spark.master"] == chosen


def test_jars_go_to_executors_of_a_cluster_with_those_that_were_given() -> None:
    assert conf(SparkSettings(CLUSTER))["spark.jars"] == "/jars/iceberg.jar,/jars/sqlite.jar"
    submitted = {"spark.master": CLUSTER, "spark.jars": "mine.jar"}
    assert conf(SparkSettings(), submitted)["spark.jars"] == "/jars/iceberg.jar,/jars/sqlite.jar,mine.jar"
    assert "spark.jars" not in conf(SparkSettings(CLUSTER), jars=[])


def test_ours_give_way_to_what_is_told() -> None:
    ours = "spark.sql.session.timeZone"
    assert conf(SparkSettings())[ours] == "UTC"
    assert conf(SparkSettings(conf={ours: "CET"}))[ours] == "CET"
    assert ours not in conf(SparkSettings(), {ours: "CET"})
    assert conf(SparkSettings(conf={ours: "EET"}), {ours: "CET"})[ours] == "EET"


@pytest.mark.parametrize(("line", "package"), [("3.5", "streaming"), ("4.1", "streaming.checkpointing")])
def test_checkpoint_folders_are_written_as_files(line: str, package: str) -> None:
    key = "spark.sql.streaming.checkpointFileManagerClass"
    ours = session_conf(SparkSettings(CLUSTER), {}, [], (), "file:/quiet", LINES[line])
    assert ours[key] == f"org.apache.spark.sql.execution.{package}.FileSystemBasedCheckpointFileManager"
    assert conf(SparkSettings(conf={key: "mine"}))[key] == "mine"


def test_options_of_java_are_added_to_ours() -> None:
    key = "spark.executor.extraJavaOptions"
    assert conf(SparkSettings(conf={key: "-Xss4m"}))[key] == "-Duser.timezone=UTC -Xss4m"
    assert conf(SparkSettings(), {key: "-Xss8m"})[key] == "-Duser.timezone=UTC -Xss8m"
