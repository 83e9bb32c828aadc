"""`headrace.materialize`: somebody's own DataFrame, in their own session."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import headrace
from headrace.errors import ConfigError, SchemaError
from headrace.pipeline.library import Materializing
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.settings import Action, Rule
from headrace.pipeline.shards.latest import Winner
from headrace.pipeline.shards.task import run_shards
from headrace.pipeline.shards.transaction import ShardJob, ShardResult
from tests.waiting import DEADLINE_SECONDS, wait_until


def table(path: Path, columns: str = "customer, cents", name: str = "sales") -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return sorted(database.execute(f"SELECT {columns} FROM {name}"))


@pytest.fixture
def given(tmp_path: Path) -> dict[str, Any]:
    return {
        "name": "sales",
        "connector": "sqlite",
        "config": {"path": str(tmp_path / "sales.db")},
        "key": ["customer"],
        "resource": {"table": "sales"},
        "state": tmp_path / "state",
    }


def sales(spark: SparkSession, *rows: tuple[str, int, int]) -> DataFrame:
    return spark.createDataFrame(list(rows), "customer string, cents long, at long")


def test_a_batch(
    spark: SparkSession, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the environment is not on the PATH, whose python3 has none of our packages."""
    rows = sales(spark, ("ann", 1, 1), ("bob", 2, 2), ("ann", 4, 3))
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "/nowhere/python3")
    progress = headrace.materialize(rows, **given, reduce={"cents": "sum", "at": "maximize"})
    assert isinstance(progress, EpochProgress)
    assert (progress.epoch, progress.read, progress.keys) == (0, 3, 2)
    assert table(tmp_path / "sales.db") == [("ann", 5), ("bob", 2)]


def test_a_batch_given_again_is_not_written_again(
    spark: SparkSession, given: dict[str, Any], tmp_path: Path
) -> None:
    how = {**given, "reduce": {"cents": "sum", "at": "maximize"}}
    rows = sales(spark, ("ann", 1, 1))
    assert headrace.materialize(rows, **how, batch="monday") is not None
    assert headrace.materialize(rows, **how, batch="monday") is None
    assert headrace.materialize(rows, **how, batch="tuesday") is not None
    assert table(tmp_path / "sales.db") == [("ann", 2)]


def test_the_last_write_wins_by_the_order_that_is_said(
    spark: SparkSession, given: dict[str, Any], tmp_path: Path
) -> None:
    rows = sales(spark, ("ann", 3, 9), ("ann", 1, 1), ("ann", 2, 5))
    headrace.materialize(rows, **given, order_by=["at"])
    assert table(tmp_path / "sales.db") == [("ann", 3)]


ORDERS = {"number": "at", "instant": "timestamp_seconds(at)", "text": "lpad(at, 3, '0')"}


@pytest.mark.parametrize(
    ("order", "left_out"),
    [
        pytest.param("number", (), id="number with document"),
        pytest.param("number", ("_document",), id="number without"),
        pytest.param("instant", (), id="instant with document", marks=pytest.mark.full),
        pytest.param("instant", ("_document",), id="instant without", marks=pytest.mark.full),
        pytest.param("text", (), id="text with document", marks=pytest.mark.full),
        pytest.param("text", ("_document",), id="text without"),
    ],
)
def test_whoever_finds_the_last_write_finds_the_same(
    spark: SparkSession,
    given: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    order: str,
    left_out: tuple[str, ...],
) -> None:
    """Spark, or the tasks of the shards; null comes before all else, and `k0` is a name like any other."""
    jobs: list[ShardJob] = []

    def watched(job: ShardJob, combined: list[DataFrame]) -> list[ShardResult]:
        jobs.append(job)
        return run_shards(job, combined)

    monkeypatch.setattr("headrace.pipeline.connector_sink.run_shards", watched)
    draw = random.Random(order)
    moments = draw.sample(range(500), 300)
    written: list[tuple[str, int, int | None]]
    written = [(f"customer {draw.randrange(40)}", cents, at) for cents, at in enumerate(moments)]
    written += [(f"customer {number}", 1_000 + number, None) for number in range(50)]
    rows = spark.createDataFrame(written, "customer string, k0 long, at long").repartition(5)
    ordered = rows.withColumn("at", F.expr(ORDERS[order]))
    progress = headrace.materialize(ordered, **given, order_by=["at"], shards=3, exclude=left_out)
    assert isinstance(progress, EpochProgress)
    in_order = sorted(written, key=lambda row: -1 if row[2] is None else row[2])
    expected = {customer: cents for customer, cents, _ in in_order}
    assert table(tmp_path / "sales.db", "customer, k0") == sorted(expected.items())
    assert (progress.documents, progress.keys) == (350, 50)
    is_left_to_tasks = bool(left_out) and order != "text"
    row_orders = [row_order and row_order.winner for job in jobs for row_order in job.row_orders]
    assert row_orders == [Winner.LAST if is_left_to_tasks else None]


def test_which_is_last_has_to_be_said(spark: SparkSession, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="name the columns that tell in `order_by`"):
        headrace.materialize(sales(spark, ("ann", 1, 1)), **given)
    with pytest.raises(ConfigError, match="ordered by 'when', and its columns are customer, cents, at"):
        headrace.materialize(sales(spark, ("ann", 1, 1)), **given, order_by=["when"])


def test_a_key_may_have_a_slash_in_its_name(
    spark: SparkSession, given: dict[str, Any], tmp_path: Path
) -> None:
    rows = sales(spark, ("ann", 1, 1)).withColumnRenamed("customer", "a/b~c")
    headrace.materialize(rows, **{**given, "key": ["a/b~c"]}, order_by=["at"])
    assert table(tmp_path / "sales.db", '"a/b~c", cents') == [("ann", 1)]


def test_what_is_wrong_with_the_rows_is_said(spark: SparkSession, given: dict[str, Any]) -> None:
    rows = spark.createDataFrame([(None, 1, 1)], "customer string, cents long, at long")
    with pytest.raises(SchemaError, match="schema:/customer"):
        headrace.materialize(rows, **given, order_by=["at"])
    with pytest.raises(SchemaError, match="`reduce` names 'total', and the columns are"):
        headrace.materialize(rows, **given, reduce={"total": "sum"})
    odd = spark.sql("SELECT 'ann' AS customer, INTERVAL 1 DAY AS cents")
    with pytest.raises(SchemaError, match="column 'cents' is interval day, which documents cannot hold"):
        headrace.materialize(odd, **given, order_by=["customer"])


def test_rules_and_dead_letters(spark: SparkSession, given: dict[str, Any], tmp_path: Path) -> None:
    rule = Rule("positive", Action.DROP, field="cents", minimum=0)
    progress = headrace.materialize(
        sales(spark, ("ann", 1, 1), ("bob", -1, 2)),
        **given,
        order_by=["at"],
        rules=[rule],
        dead_letters=tmp_path / "dead",
    )
    assert isinstance(progress, EpochProgress)
    assert (progress.read, progress.good, progress.dead) == (2, 1, 1)
    with pytest.raises(ConfigError, match="say where dead letters go"):
        headrace.materialize(sales(spark, ("ann", 1, 1)), **given, order_by=["at"], rules=[rule])
    letters = spark.read.parquet(str(tmp_path / "dead")).collect()
    assert [letter["rules"] for letter in letters] == [["positive"]]


def test_a_stream(spark: SparkSession, given: dict[str, Any], tmp_path: Path) -> None:
    files = tmp_path / "files"
    sales(spark, ("ann", 1, 1), ("bob", 2, 2)).coalesce(1).write.parquet(str(files))
    stream = spark.readStream.schema("customer string, cents long, at long").parquet(str(files))
    how = {**given, "reduce": {"cents": "sum", "at": "maximize"}, "available_now": True}
    with pytest.raises(ConfigError, match="exactly-once cannot be had"):
        headrace.materialize(stream, **how, guarantee="exactly-once")
    for _ in range(2):
        running = headrace.materialize(stream, **how)
        assert isinstance(running, Materializing)
        assert running.wait(DEADLINE_SECONDS)
        sales(spark, ("ann", 4, 3)).coalesce(1).write.mode("append").parquet(str(files))
    assert table(tmp_path / "sales.db") == [("ann", 5), ("bob", 2)]


def test_a_stream_that_is_stopped(spark: SparkSession, given: dict[str, Any], tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    rows = stream.selectExpr("string(value % 3) AS customer", "value AS cents")
    running = headrace.materialize(rows, **given, reduce={"cents": "sum"}, shards=2)
    assert isinstance(running, Materializing)
    wait_until(lambda: running.wait(0.0) or (running.progress is not None and running.progress.stored > 0))
    assert not running.wait(0.0), "it runs until it is stopped"
    running.stop()
    assert table(tmp_path / "sales.db")


def test_a_failure_is_raised_where_somebody_waits(spark: SparkSession, given: dict[str, Any]) -> None:
    stream = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
    rows = stream.selectExpr("IF(value > 0, NULL, 'ann') AS customer", "value AS cents")
    running = headrace.materialize(rows, **given, reduce={"cents": "sum"})
    assert isinstance(running, Materializing)
    with pytest.raises(SchemaError, match="schema:/customer"):
        running.wait(DEADLINE_SECONDS)
