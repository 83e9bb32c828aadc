"""Rows of a DataFrame as Parquet files, written by Spark's tasks to a folder and to a bucket."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from devtools.s3_server import S3Server
from headrace.errors import ConfigError, EndpointError, UnexpectedFailure
from headrace.sinks import staged_files
from headrace.sinks.contract import Place
from headrace.sinks.roots import Root, root_of
from headrace.sinks.staged_files import StagedFile, stage
from tests.sinks.conftest import Rows
from tests.sinks.s3_place import s3_options, s3_reader

Read = Callable[[StagedFile], pa.Table]


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.processes)])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Root:
    if request.param == "folder":
        return Root((tmp_path / "some place").as_uri())
    server: S3Server = request.getfixturevalue("s3_server")
    return Root(f"s3://{request.getfixturevalue('s3_bucket')}/some/place", s3_options(server))


@pytest.fixture
def read(root: Root, request: pytest.FixtureRequest) -> Read:
    """By pyarrow's own file systems."""
    if root.folder:
        return lambda file: pq.read_table(root.folder / file.path)  # type: ignore[operator]
    files: pafs.S3FileSystem = s3_reader(request.getfixturevalue("s3_server"))
    return lambda file: pq.read_table(f"{root.url.removeprefix('s3://')}/{file.path}", filesystem=files)


def test_files_hold_the_rows_and_say_what_is_in_them(root: Root, read: Read, rows: Rows) -> None:
    staged = stage(rows(12, 5), root, "data/one")
    assert sum(file.rows for file in staged) == 5
    tables = [read(file) for file in staged]
    assert sorted(pa.concat_tables(tables)["value"].to_pylist()) == [120, 121, 122, 123, 124]
    assert tables[0].schema.field("at").type == pa.timestamp("us", tz="UTC")
    for file, table in zip(staged, tables, strict=True):
        assert file.path.startswith("data/one/")
        known = json.loads(file.statistics)
        assert known["numRecords"] == file.rows == table.num_rows
        values = table["value"].to_pylist()
        assert (known["minValues"]["value"], known["maxValues"]["value"]) == (min(values), max(values))
        # Bounds of instants have milliseconds, and contain what they bound.
        assert known["minValues"]["at"] == "2026-11-16T08:00:00.123Z"
        assert known["maxValues"]["at"] == "2026-11-16T08:00:00.124Z"
        assert known["nullCount"] == {"epoch": 0, "odd name.": 0, "value": 0, "at": 0}


def test_each_partition_has_files_of_its_own(root: Root, read: Read, rows: Rows) -> None:
    frame = rows(1, 6).selectExpr(
        "*", "if(value = 10, null, concat('a b/', value % 2)) as part", "at as moment"
    )
    staged = stage(frame, root, "data/two", ["part", "moment"], in_folders=True)
    found: dict[str | None, list[int]] = {}
    for file in staged:
        assert file.partition["moment"] == "2026-11-16T08:00:00.123456Z"
        assert file.path.split("/")[2:4] == [
            "part=__HIVE_DEFAULT_PARTITION__"
            if file.partition["part"] is None
            else f"part=a b%2F{file.partition['part'][-1]}",
            "moment=2026-11-16T08%3A00%3A00.123456Z",
        ]
        table = read(file)
        assert not {"part", "moment"} & set(table.column_names)
        found.setdefault(file.partition["part"], []).extend(table["value"].to_pylist())
    assert {part: sorted(values) for part, values in found.items()} == {
        None: [10],
        "a b/0": [12, 14],
        "a b/1": [11, 13, 15],
    }


def test_all_types_come_back(root: Root, read: Read, spark: SparkSession) -> None:
    frame = spark.sql(
        "select true as b, 1.5D as d, cast('12.50' as decimal(10,2)) as m, date'2026-11-16' as day, "
        "'ü' as s, array('x', null) as l, named_struct('f', 1L) as o, map('k', 1) as p, "
        "cast(null as string) as n, X'00ff' as y"
    )
    (file,) = stage(frame, root, "data")
    (row,) = read(file).to_pylist()
    assert row == {
        "b": True,
        "d": 1.5,
        "m": Decimal("12.50"),
        "day": date(2026, 11, 16),
        "s": "ü",
        "l": ["x", None],
        "o": {"f": 1},
        "p": [("k", 1)],
        "n": None,
        "y": b"\x00\xff",
    }
    known = json.loads(file.statistics)
    assert known["minValues"] == {"day": "2026-11-16", "s": "ü"}
    assert known["nullCount"]["n"] == 1


def test_an_attempt_that_fails_leaves_no_rows_behind(root: Root, read: Read, rows: Rows) -> None:
    def flaky(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise OSError("a worker that gives up once")

    frame = rows(0, 4).select("value")
    staged = stage(frame.mapInArrow(flaky, frame.schema), root, "data")
    values = [value for file in staged for value in read(file)["value"].to_pylist()]
    assert sorted(values) == [0, 1, 2, 3]


def test_no_rows_are_no_files(root: Root, rows: Rows) -> None:
    assert stage(rows(0, 0), root, "data") == []


def test_what_spark_cannot_compute_is_one_sentence(root: Root, spark: SparkSession) -> None:
    broken = spark.range(1).selectExpr("raise_error('no such luck') as value")
    with pytest.raises(UnexpectedFailure, match="Spark cannot write to ") as caught:
        stage(broken, root, "data")
    assert "\n" not in caught.value.message


def test_columns_that_files_cannot_be_laid_out_by(root: Root, rows: Rows) -> None:
    frame = rows(0).selectExpr("value", "cast(value as double) as amount")
    with pytest.raises(ConfigError, match="there is no column 'nosuch' to lay files out by"):
        stage(frame, root, "data", ["nosuch"])
    with pytest.raises(ConfigError, match="files cannot be laid out by 'amount', which is double"):
        stage(frame, root, "data", ["amount"])
    with pytest.raises(ConfigError, match="nothing is left to write"):
        stage(frame.select("value"), root, "data", ["value"])


def test_what_the_store_refuses_is_told_as_it_is(s3_server: S3Server, s3_bucket: str, rows: Rows) -> None:
    wrong = {**s3_options(s3_server), "secret_access_key": "surely not"}
    with pytest.raises(EndpointError, match=rf"store s3://{s3_bucket}/x cannot put data/.*parquet") as caught:
        stage(rows(0), Root(f"s3://{s3_bucket}/x", wrong), "data")
    assert "surely not" not in caught.value.message


def test_options_that_there_are_not() -> None:
    with pytest.raises(ConfigError, match="'nonsense' is not valid"):
        root_of(Place("s3://bucket/x", "view", options={"nonsense": "1"})).check()
    with pytest.raises(ConfigError, match="a folder has no option 'region': leave it out"):
        root_of(Place("/srv/x", "view", options={"region": "x"})).check()
    for location in ("hdfs://host/x", "file://elsewhere/x", "s3://", ""):
        with pytest.raises(ConfigError, match="is no folder"):
            root_of(Place(location, "view"))


class TestOneTask:
    """What a task holds in memory and keeps open, without Spark."""

    SCHEMA = pa.schema([("part", pa.int64()), ("text", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])

    def write(self, folder: Path, parts: list[int]) -> list[StagedFile]:
        job = staged_files._Job(Root(folder.as_uri()), "data", self.SCHEMA, ("part",), False)
        writer = staged_files._Writer(job)
        at = datetime(2026, 11, 16, tzinfo=UTC)
        for part in parts:
            texts = [f"{part}-{number}" for number in range(100)]
            batch = pa.RecordBatch.from_pydict(
                {"part": [part] * 100, "text": texts, "at": [at] * 100}, schema=self.SCHEMA
            )
            writer.add(batch)
        return writer.finish()

    def texts(self, folder: Path, files: list[StagedFile]) -> list[str]:
        return sorted(
            text for file in files for text in pq.read_table(folder / file.path)["text"].to_pylist()
        )

    def test_more_partitions_than_files_may_be_open(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(staged_files, "ROW_GROUP_BYTES", 1)  # each batch is written at once
        monkeypatch.setattr(staged_files, "_OPEN_FILES", 3)
        parts = [0, 1, 2, 3, 4, 0, 1, 2, 3, 4]
        files = self.write(tmp_path, parts)
        assert len(files) == 10
        assert self.texts(tmp_path, files) == sorted(
            f"{part}-{number}" for part in parts for number in range(100)
        )

    def test_row_groups_are_written_as_they_fill_and_files_ended_as_they_grow(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(staged_files, "ROW_GROUP_BYTES", 5000)
        (file,) = self.write(tmp_path, [0] * 10)
        metadata: Any = pq.read_metadata(tmp_path / file.path)
        assert (metadata.num_rows, file.rows) == (1000, 1000)
        assert metadata.num_row_groups > 2
        assert json.loads(file.statistics)["minValues"]["text"] == "0-0"
        monkeypatch.setattr(staged_files, "FILE_BYTES", 1)
        assert len(self.write(tmp_path, [0] * 10)) == metadata.num_row_groups

    def test_files_and_folders_are_synced(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        import os

        synced: list[str] = []
        real = os.fsync

        def sync(descriptor: int) -> None:
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", sync)
        files = self.write(tmp_path, [1])
        wanted = {str(tmp_path / files[0].path), str(tmp_path / "data"), str(tmp_path)}
        assert wanted <= set(synced)
