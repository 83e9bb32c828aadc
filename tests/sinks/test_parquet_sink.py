"""Epochs in a folder: seen whole or not at all, through crashes between every two steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError, EndpointError, EndpointUnavailable, UnexpectedFailure
from headrace.sinks import parquet
from headrace.sinks.parquet import ParquetSink, read_label
from tests.sinks.conftest import Rows, an_epoch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dead letters"  # a space, which URLs quote and Hadoop does not


def sink_of(folder: Path) -> ParquetSink:
    """A new one each time, as in a new process."""
    return ParquetSink("dead", folder.as_uri())


def values(folder: Path) -> list[int]:
    """As a reader sees the folder who knows nothing of us."""
    if not folder.exists():
        return []
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    return sorted(table["value"].to_pylist()) if "value" in table.column_names else []


def staged(folder: Path) -> list[str]:
    return (
        sorted(path.name for path in (folder / "_staged").iterdir()) if (folder / "_staged").exists() else []
    )


def test_nothing_is_seen_before_the_commit_and_all_after_it(
    folder: Path, rows: Rows, spark: SparkSession
) -> None:
    handle = sink_of(folder).prepare(an_epoch(12), rows(12))
    assert handle["rows"] == 3
    assert values(folder) == []
    sink_of(folder).commit(12, handle)
    assert values(folder) == [120, 121, 122]
    assert sorted(path.name for path in folder.iterdir()) == ["_staged", "epoch=00000000000000000012"]
    assert staged(folder) == []
    published = folder / "epoch=00000000000000000012"
    assert not [path.name for path in published.iterdir() if path.name.startswith(".")]
    assert read_label(published) == {"id": handle["staged"], "epoch": 12, "rows": 3}
    read = spark.read.parquet(str(folder))
    assert sorted(row["value"] for row in read.collect()) == [120, 121, 122]
    assert {row["epoch"] for row in read.collect()} == {12}
    partitioning = ds.partitioning(pa.schema([("epoch", pa.int64())]), flavor="hive")
    table = ds.dataset(folder, partitioning=partitioning).to_table()
    assert table["epoch"].to_pylist() == [12, 12, 12]
    assert table.schema.field("at").type == pa.timestamp("us", tz="UTC")
    assert table["at"][0].as_py().isoformat() == "2026-11-16T08:00:00.123456+00:00"


def test_a_commit_has_one_effect_however_often(folder: Path, rows: Rows) -> None:
    first = sink_of(folder).prepare(an_epoch(0), rows(0))
    sink_of(folder).commit(0, first)
    second = sink_of(folder).prepare(an_epoch(1), rows(1))
    for _ in range(2):
        sink_of(folder).commit(0, first)
        sink_of(folder).commit(1, second)
        sink_of(folder).start(1, second, 2)
    assert values(folder) == [0, 1, 2, 10, 11, 12]


def test_two_who_commit_at_once(folder: Path, rows: Rows) -> None:
    handle = sink_of(folder).prepare(an_epoch(0), rows(0))
    errors: list[Exception] = []
    both = threading.Barrier(8)

    def commit() -> None:
        sink = sink_of(folder)
        both.wait()
        try:
            sink.commit(0, handle)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [threading.Thread(target=commit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert values(folder) == [0, 1, 2]


def test_an_abort_leaves_nothing_and_may_be_repeated(folder: Path, rows: Rows) -> None:
    handle = sink_of(folder).prepare(an_epoch(0), rows(0))
    for _ in range(2):
        sink_of(folder).abort(0, handle)
    assert (staged(folder), values(folder)) == ([], [])


def test_a_start_removes_all_but_what_was_decided(folder: Path, rows: Rows) -> None:
    never = sink_of(folder).prepare(an_epoch(0), rows(0))
    decided = sink_of(folder).prepare(an_epoch(0), rows(0))
    sink_of(folder).prepare(an_epoch(1), rows(1))
    assert never["staged"] != decided["staged"]
    sink_of(folder).start(0, decided, 2)
    assert staged(folder) == [decided["staged"]]
    sink_of(folder).commit(0, decided)
    assert values(folder) == [0, 1, 2]


def test_a_start_without_a_decision_removes_everything(folder: Path, rows: Rows) -> None:
    sink_of(folder).start(None, None, 1)
    assert not folder.exists()
    sink_of(folder).prepare(an_epoch(0), rows(0))
    sink_of(folder).start(None, None, 2)
    assert staged(folder) == []


def test_somebody_who_wakes_up_late_leaves_what_his_successor_staged(folder: Path, rows: Rows) -> None:
    theirs = sink_of(folder).prepare(an_epoch(0, fence=2), rows(0))
    sink_of(folder).start(None, None, 1)
    sink_of(folder).commit(0, theirs)
    assert values(folder) == [0, 1, 2]


def test_an_epoch_without_rows_leaves_no_trace(folder: Path, rows: Rows) -> None:
    for empty in (None, rows(0, 0)):
        handle = sink_of(folder).prepare(an_epoch(0), empty)
        assert handle == {}
        sink_of(folder).commit(0, handle)
        sink_of(folder).abort(0, handle)
        sink_of(folder).start(0, handle, 2)
        assert (staged(folder), values(folder)) == ([], [])


def test_a_rewind_removes_later_epochs_which_then_come_again(folder: Path, rows: Rows) -> None:
    for number in range(3):
        sink_of(folder).commit(number, sink_of(folder).prepare(an_epoch(number), rows(number, 1)))
    for _ in range(2):
        sink_of(folder).rewind(0)
        assert values(folder) == [0]
    sink_of(folder).commit(1, sink_of(folder).prepare(an_epoch(1), rows(1, 2)))
    assert values(folder) == [0, 10, 11]
    assert staged(folder) == []


def test_a_folder_that_another_pipeline_uses_is_refused_before_anything_is_written(
    folder: Path, rows: Rows
) -> None:
    sink_of(folder).commit(0, sink_of(folder).prepare(an_epoch(0), rows(0)))
    with pytest.raises(
        EndpointError, match="epoch 0 was never decided here: another pipeline writes to this folder"
    ):
        sink_of(folder).prepare(an_epoch(0), rows(0))
    assert staged(folder) == []


def test_what_both_of_two_pipelines_decided_is_not_mixed(folder: Path, rows: Rows) -> None:
    ours, theirs = (sink_of(folder).prepare(an_epoch(0), rows(0)) for _ in range(2))
    sink_of(folder).commit(0, theirs)
    with pytest.raises(EndpointError, match="with other rows than epoch 0 has here"):
        sink_of(folder).commit(0, ours)
    assert values(folder) == [0, 1, 2]


def test_what_was_prepared_and_is_gone_is_said(folder: Path, rows: Rows) -> None:
    handle = sink_of(folder).prepare(an_epoch(0), rows(0))
    sink_of(folder).abort(0, handle)
    with pytest.raises(
        EndpointError, match=r"is neither there nor in .*epoch=00000000000000000000: restore it"
    ):
        sink_of(folder).commit(0, handle)


def test_everything_is_synced_before_it_is_relied_on(
    folder: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    real = parquet._sync

    def sync(path: Path) -> None:
        synced.append(path)
        real(path)

    monkeypatch.setattr(parquet, "_sync", sync)
    handle = sink_of(folder).prepare(an_epoch(0), rows(0))
    place = folder / "_staged" / handle["staged"]
    assert {*place.iterdir(), place, place.parent, folder, folder.parent} <= set(synced)
    synced.clear()
    sink_of(folder).commit(0, handle)
    assert folder in synced
    synced.clear()
    sink_of(folder).commit(0, handle)  # whoever renamed it may have died at once
    assert folder in synced


def test_a_sync_that_fails_is_tried_again(folder: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = sink_of(folder).prepare(an_epoch(0), rows(0))

    def broken(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(parquet, "_sync", broken)
        with pytest.raises(
            EndpointUnavailable, match=r"sink dead: the folder .* cannot publish epoch 0: Input/output"
        ):
            sink_of(folder).commit(0, handle)
    sink_of(folder).commit(0, handle)
    assert values(folder) == [0, 1, 2]


def test_what_spark_cannot_write_is_one_sentence(folder: Path, spark: SparkSession) -> None:
    broken = spark.range(1).selectExpr("raise_error('no such luck') as value")
    with pytest.raises(UnexpectedFailure, match="sink dead: Spark cannot write ") as caught:
        sink_of(folder).prepare(an_epoch(0), broken)
    assert "\n" not in caught.value.message
    assert (staged(folder), values(folder)) == ([], [])


@pytest.mark.parametrize("url", ["s3://bucket/dead", "hdfs://host/x", "file://elsewhere/x", ""])
def test_other_places_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="use the format iceberg there"):
        ParquetSink("dead", url)


CHILD = """
import json, os, sys
from pathlib import Path
from headrace.sinks import parquet
sink = parquet.ParquetSink("dead", sys.argv[1])
real = Path.rename
def rename(self, target):
    if sys.argv[3] == "after":
        real(self, target)
    os.kill(os.getpid(), 9)
Path.rename = rename
sink.commit(0, json.loads(sys.argv[2]))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_committer_that_is_killed_at_the_rename(folder: Path, rows: Rows, when: str) -> None:
    handle = sink_of(folder).prepare(an_epoch(0), rows(0))
    child = subprocess.run(
        [sys.executable, "-c", CHILD, folder.as_uri(), json.dumps(handle), when], env=os.environ, check=False
    )
    assert child.returncode == -signal.SIGKILL
    assert values(folder) == ([] if when == "before" else [0, 1, 2])
    sink_of(folder).start(0, handle, 2)
    sink_of(folder).commit(0, handle)
    assert values(folder) == [0, 1, 2]
    assert staged(folder) == []


def test_a_commit_goes_to_the_folder_that_was_staged_in(folder: Path, rows: Rows) -> None:
    handle = sink_of(folder).prepare(an_epoch(0), rows(0))
    never = sink_of(folder).prepare(an_epoch(1), rows(1))
    elsewhere = sink_of(folder.with_name("elsewhere"))
    elsewhere.start(0, handle, 2)
    elsewhere.commit(0, handle)
    elsewhere.abort(1, never)
    assert (values(folder), staged(folder)) == ([0, 1, 2], [])
    assert not elsewhere.folder.exists()


def test_who_was_replaced_does_not_bring_back_what_was_rewound(folder: Path, rows: Rows) -> None:
    handle = sink_of(folder).prepare(an_epoch(1), rows(1))
    successor = sink_of(folder)
    successor.start(1, handle, 2)
    successor.commit(1, handle)
    successor.rewind(0)
    with pytest.raises(EndpointError, match="is neither there nor in"):
        sink_of(folder).commit(1, handle)
    again = successor.prepare(an_epoch(1, fence=2), rows(1, 1))
    successor.commit(1, again)
    with pytest.raises(EndpointError, match="is there already, with other rows"):
        sink_of(folder).commit(1, handle)
    assert values(folder) == [10]
