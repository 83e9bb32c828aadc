"""What is in a folder of Parquet files: partitions, columns, and where it stands."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from headrace.errors import (
    SchemaError,
)
from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.parquet_place import committed, sink_of, staged, values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dead letters"  # a space, which URLs quote and Hadoop does not


def test_partitions_are_folders_in_the_folder_of_an_epoch(folder: Path, rows: Rows) -> None:
    parted = rows(7, 4).selectExpr("*", "concat('a/', value % 2) as part", "date'2026-11-16' as day")
    committed(folder, 7, parted, partitions=("part", "day"))
    found = duckdb.execute(
        f"SELECT epoch, part, day, value FROM read_parquet('{folder}/epoch=*/**/*.parquet', "
        "hive_partitioning = true, hive_types = {'epoch': BIGINT}) ORDER BY value"
    ).fetchall()
    assert [(row[0], row[1], str(row[2]), row[3]) for row in found] == [
        (7, "a/0", "2026-11-16", 70),
        (7, "a/1", "2026-11-16", 71),
        (7, "a/0", "2026-11-16", 72),
        (7, "a/1", "2026-11-16", 73),
    ]
    place = Place(folder.as_uri(), "view", partitions=("part", "day"))
    table = pa.Table.from_batches(ParquetSink.read(place, ["value", "part", "day", "epoch"], 7))
    assert table.schema.field("day").type == pa.date32()
    assert sorted(table.to_pylist(), key=lambda row: row["value"])[1] == {
        "value": 71,
        "part": "a/1",
        "day": table["day"][0].as_py(),
        "epoch": 7,
    }


def test_an_epoch_column_that_readers_would_skip_is_in_the_files(folder: Path, rows: Rows) -> None:
    frame = rows(3).withColumnRenamed("epoch", "_epoch").selectExpr("*", "'mine' as epoch")
    committed(folder, 3, frame, epoch="_epoch")
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    assert table.select(["_epoch", "epoch"]).to_pylist() == [{"_epoch": 3, "epoch": "mine"}] * 3
    place = Place(folder.as_uri(), "view", epoch="_epoch")
    assert list(ParquetSink.audit(place, {3: 3})) == []
    assert list(ParquetSink.audit(place, {3: 4, 4: 1})) == [
        "epoch 3 was committed with 4 rows, and 3 are there",
        "epoch 4 was committed with 1 rows, and 0 are there",
    ]


def test_readers_of_a_sink_with_partitions(folder: Path, rows: Rows, spark: SparkSession) -> None:
    """By the letter of docs/sinks/parquet.md."""
    for number in range(2):
        frame = rows(number, 2).withColumnRenamed("epoch", "_epoch")
        parted = frame.selectExpr("*", "concat('p', value % 2) as part")
        committed(folder, number, parted, epoch="_epoch", partitions=("part",))
    expected = [(0, "p0", 0), (0, "p1", 1), (1, "p0", 10), (1, "p1", 11)]
    found = duckdb.execute(
        f"SELECT _epoch, part, value FROM read_parquet('{folder}/epoch-*/**/*.parquet', "
        "hive_partitioning = true, union_by_name = true)"
    ).fetchall()
    assert sorted(found) == expected
    table = ds.dataset(folder, partitioning="hive").to_table(columns=["_epoch", "part", "value"])
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == expected
    one = spark.read.parquet(f"{folder}/epoch-{1:020}").select("_epoch", "part", "value")
    assert sorted(tuple(row) for row in one.collect()) == expected[2:]
    read = spark.read.option("recursiveFileLookup", "true").parquet(str(folder)).select("_epoch", "value")
    assert sorted(tuple(row) for row in read.collect()) == [(one[0], one[2]) for one in expected]


def test_new_columns_are_null_in_what_is_there(folder: Path, rows: Rows) -> None:
    committed(folder, 0, rows(0, 1))
    committed(folder, 1, rows(1, 1).selectExpr("*", "array('x') as new"))
    committed(folder, 2, rows(2, 1))
    place = Place(folder.as_uri(), "view")
    read = pa.Table.from_batches(ParquetSink.read(place, ["value", "new"], None)).to_pylist()
    assert sorted(read, key=lambda row: row["value"]) == [
        {"value": 0, "new": None},
        {"value": 10, "new": ["x"]},
        {"value": 20, "new": None},
    ]


def test_any_other_change_of_columns_is_refused_before_anything_is_staged(folder: Path, rows: Rows) -> None:
    committed(folder, 0, rows(0))
    for change in ("cast(value as string) as value", "value as VALUE"):
        changed = rows(1).drop("value").join(rows(1).selectExpr(change))
        with pytest.raises(SchemaError, match=r"has the column 'value' as long|differs in case only"):
            sink_of(folder).prepare(an_epoch(1), changed)
    assert staged(folder) == []


def test_the_folder_tells_where_its_last_epoch_ends(folder: Path, rows: Rows) -> None:
    assert sink_of(folder).committed() is None
    for number in range(3):
        committed(folder, number, rows(number))
    assert sink_of(folder).committed() == {"offsets": 2}
    sink_of(folder).rewind(1)
    assert sink_of(folder).committed() == {"offsets": 1}


def test_maintenance_leaves_what_is_staged(folder: Path, rows: Rows) -> None:
    """The next epoch waits for a sink that cannot commit the one before, for as long as that takes."""
    pipeline = sink_of(folder)
    pipeline.start(None, None, 2)
    waiting, after = (pipeline.prepare(an_epoch(epoch, fence=2), rows(epoch)) for epoch in range(2))
    left = sink_of(folder).prepare(an_epoch(0, fence=1), rows(0))  # of somebody who was replaced
    assert list(sink_of(folder).maintain(timedelta(hours=1), waiting)) == []
    (told,) = sink_of(folder).maintain(timedelta(0), waiting)
    assert (left["staged"] in told, "was never committed" in told) == (True, True)
    pipeline.commit(0, waiting)
    pipeline.commit(1, after)
    assert (values(folder), staged(folder)) == ([0, 1, 2, 10, 11, 12], [])


def test_an_epoch_that_was_never_decided_and_is_there(folder: Path, rows: Rows) -> None:
    for number in range(3):
        committed(folder, number, rows(number))
    place = Place(folder.as_uri(), "view")
    asked: list[int] = []

    def last() -> int:
        asked.append(1)
        return 1

    said = "epoch 2 was never decided, and 3 rows of it are there"
    assert list(ParquetSink.audit(place, {0: 3, 1: 3}, last)) == [said]
    assert list(ParquetSink.audit(place, {0: 3, 1: 3}, lambda: 2)) == []  # decided since the log was read
    assert list(ParquetSink.audit(place, {0: 3}, last)) == [said]
    assert len(asked) == 2
    assert list(ParquetSink.audit(place, {0: 3, 1: 3, 2: 3}, last)) == []
    assert len(asked) == 2  # there was nothing to ask
