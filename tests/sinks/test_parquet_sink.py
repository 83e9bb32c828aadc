"""Epochs in a folder: seen whole or not at all, through crashes between every two steps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from headrace.durable import sync_path
from headrace.errors import (
    ConfigError,
    EndpointError,
    EndpointUnavailable,
    Fenced,
    UnexpectedFailure,
)
from headrace.sinks import parquet_folder
from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.parquet_folder import read_label
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.parquet_place import committed, sink_of, staged, values
from tests.sinks.together import polled, run_together


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "dead letters"  # a space, which URLs quote and Hadoop does not


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
    label = read_label(published)
    assert (label.id, label.epoch, label.rows) == (handle["staged"], 12, 3)
    assert label.runtime_checkpoint == {"offsets": 12}
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
    sinks = [sink_of(folder) for _ in range(8)]
    run_together([partial(sink.commit, 0, handle) for sink in sinks])
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


def test_a_folder_of_another_pipeline_is_refused_before_anything_is_removed(folder: Path, rows: Rows) -> None:
    sink = sink_of(folder)
    sink.start(None, None, 1)
    decided = sink.prepare(an_epoch(0), rows(0))
    other = ParquetSink("dead", Place(folder.as_uri(), "other"))
    other.start(None, None, 2)
    for refused in (partial(other.prepare, an_epoch(1), rows(1)), partial(other.rewind, -1)):
        with pytest.raises(EndpointError, match=r"is written by materialization 'view': .* --adopt"):
            refused()
    assert staged(folder) == [decided["staged"]]
    sink_of(folder).start(0, decided, 2)
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


def test_a_rewind_hides_later_epochs_until_they_have_come_again(folder: Path, rows: Rows) -> None:
    for number in range(3):
        sink_of(folder).commit(number, sink_of(folder).prepare(an_epoch(number), rows(number, 1)))
    for _ in range(2):
        sink_of(folder).rewind(0)
        assert values(folder) == [0]
    sink_of(folder).commit(1, sink_of(folder).prepare(an_epoch(1), rows(1, 2)))
    assert values(folder) == [0, 10, 11]
    assert staged(folder) == []
    hidden = [path.name for path in (folder / "_rewound").glob("1/*")]
    assert sorted(int(name.partition("=")[2]) for name in hidden) == [1, 2]
    sink_of(folder).commit(2, sink_of(folder).prepare(an_epoch(2), rows(2, 2)))
    assert values(folder) == [0, 10, 11, 20, 21]
    assert list((folder / "_rewound").iterdir()) == []


def test_what_was_taken_back_can_be_brought_back_by_hand(folder: Path, rows: Rows) -> None:
    """As docs/sinks/parquet.md says."""
    for number in range(3):
        sink_of(folder).commit(number, sink_of(folder).prepare(an_epoch(number), rows(number, 1)))
    sink_of(folder).rewind(0)
    for path in (folder / "_rewound").glob("*/epoch*"):
        path.rename(folder / path.name)
    assert values(folder) == [0, 10, 20]


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

    def sync(path: Path) -> None:
        synced.append(path)
        sync_path(path)

    monkeypatch.setattr(parquet_folder, "sync_path", sync)
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
        patched.setattr(parquet_folder, "sync_path", broken)
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


def test_places_that_cannot_be() -> None:
    for url in ("hdfs://host/x", "file://elsewhere/x", ""):
        with pytest.raises(ConfigError, match="is no folder"):
            ParquetSink("dead", Place(url, "view"))
    with pytest.raises(ConfigError, match="cannot be updated by key"):
        ParquetSink("dead", Place("/srv/x", "view", keys=("id",)))
    with pytest.raises(ConfigError, match="a folder has no option 'region'"):
        ParquetSink("dead", Place("/srv/x", "view", options={"region": "x"}))


CHILD = """
import json, os, sys
from pathlib import Path
from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink
sink = ParquetSink("dead", Place(sys.argv[1], "view"))
real = Path.rename
def rename(self, target):
    if sys.argv[3] == "after":
        real(self, target)
    os.kill(os.getpid(), 9)
Path.rename = rename
sink.commit(0, json.loads(sys.argv[2]))
"""


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.full)])
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
    assert not folder.with_name("elsewhere").exists()


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


def test_who_was_replaced_takes_back_nothing(folder: Path, rows: Rows) -> None:
    committed(folder, 0, rows(0))
    zombie, successor = sink_of(folder), sink_of(folder)
    zombie.start(0, None, 1)
    successor.start(0, None, 2)
    successor.commit(1, successor.prepare(an_epoch(1, fence=2), rows(1)))
    with pytest.raises(Fenced, match="another coordinator has started since"):
        zombie.rewind(0)
    with pytest.raises(Fenced):  # it was stopped before it came here
        sink_of(folder).start(0, None, 1)
    assert values(folder) == [0, 1, 2, 10, 11, 12]
    successor.rewind(0)
    assert values(folder) == [0, 1, 2]
    lost = sink_of(folder)  # a log that was lost begins anew
    lost.start(None, None, 1)
    lost.rewind(-1)
    assert values(folder) == []


def test_who_was_replaced_before_there_was_a_folder_takes_back_nothing(folder: Path, rows: Rows) -> None:
    zombie, successor = sink_of(folder), sink_of(folder)
    zombie.start(None, None, 1)
    successor.start(None, None, 2)
    successor.commit(0, successor.prepare(an_epoch(0, fence=2), rows(0)))
    with pytest.raises(Fenced):
        zombie.rewind(-1)
    assert values(folder) == [0, 1, 2]


def test_a_reader_sees_whole_epochs_at_every_moment(folder: Path, rows: Rows) -> None:
    handles = [sink_of(folder).prepare(an_epoch(number), rows(number, 20)) for number in range(4)]
    with polled(lambda: values(folder)) as seen:
        for number, handle in enumerate(handles):
            sink_of(folder).commit(number, handle)
    whole = [sorted(v for n in range(count) for v in range(n * 10, n * 10 + 20)) for count in range(5)]
    assert [found for found in seen if found not in whole] == []
    assert seen[-1] == whole[-1]


def test_who_is_replaced_while_he_takes_back_leaves_what_his_successor_has(
    folder: Path, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        committed(folder, number, rows(number))
    zombie, successor = sink_of(folder), sink_of(folder)
    zombie.start(1, None, 1)
    again = rows(1, 1)
    real = Path.rename

    def rename(self: Path, target: Path) -> Path:
        """The zombie sleeps before its first one."""
        monkeypatch.setattr(Path, "rename", real)
        successor.start(1, None, 2)
        successor.rewind(0)
        successor.commit(1, successor.prepare(an_epoch(1, fence=2), again))
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(Fenced):
        zombie.rewind(0)
    assert values(folder) == [0, 1, 2, 10]
