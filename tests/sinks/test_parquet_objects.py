"""Epochs in a bucket, read by their manifests: seen whole or not at all, each once."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame

from devtools.s3_server import S3Server
from headrace.errors import ConfigError, EndpointError, Fenced, SchemaError
from headrace.model.checkpoints import JsonObject
from headrace.objects import ObjectStore
from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink, read_manifests
from headrace.sinks.staging import Staging
from tests.docs.running import run_examples
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.killed_sink import frozen, run_killed
from tests.sinks.parquet_place import sink_of, staged, values
from tests.sinks.s3_place import s3_options, s3_reader
from tests.sinks.together import polled, run_together


class World:
    """One place, and new sinks for it, as in new processes."""

    def __init__(self, server: S3Server, bucket: str, **how: Any) -> None:
        self.server, self.bucket = server, bucket
        self.place = Place(f"s3://{bucket}/some/orders", "view", options=s3_options(server), **how)
        self.files: pafs.S3FileSystem = s3_reader(server)
        self.store = ObjectStore(self.place.location, server.obstore_options())

    def sink(self) -> ParquetSink:
        return ParquetSink("orders", self.place)

    def prepare(self, number: int, rows: DataFrame | None, fence: int = 1) -> JsonObject:
        return self.sink().prepare(an_epoch(number, fence), rows)

    def run(self, number: int, rows: DataFrame) -> JsonObject:
        handle = self.prepare(number, rows)
        self.sink().commit(number, handle)
        return handle

    def paths(self, folder: str) -> list[str]:
        return self.store.list(folder, "look")

    def values(self) -> list[int]:
        """As a reader sees the place who has only our manifests."""
        found = []
        for file in read_manifests(self.place.location, self.place.options):
            table = pq.read_table(file.url.removeprefix("s3://"), filesystem=self.files)
            assert table.num_rows == file.rows
            assert self.files.get_file_info(file.url.removeprefix("s3://")).size == file.size
            found += table["value"].to_pylist()
        return sorted(found)


@pytest.fixture
def world(s3_server: S3Server, s3_bucket: str) -> World:
    return World(s3_server, s3_bucket)


def test_a_place_of_another_pipeline_is_refused_before_anything_is_removed(world: World, rows: Rows) -> None:
    world.sink().start(None, None, 1)
    decided = world.prepare(0, rows(0))
    other = ParquetSink("orders", replace(world.place, writer="other"))
    other.start(None, None, 2)
    for refused in (partial(other.prepare, an_epoch(1), rows(1)), partial(other.rewind, -1)):
        with pytest.raises(EndpointError, match=r"is written by materialization 'view': .* --adopt"):
            refused()
    world.sink().start(0, decided, 2)
    world.sink().commit(0, decided)
    assert world.values() == [0, 1, 2]


def test_nothing_is_seen_before_the_commit_and_all_after_it(world: World, rows: Rows) -> None:
    handle = world.prepare(12, rows(12))
    assert (handle["rows"], world.values()) == (3, [])
    assert len(world.paths("data")) > 0
    world.sink().commit(12, handle)
    assert world.values() == [120, 121, 122]
    assert world.paths("_manifests") == ["_manifests/00000000000000000012-000000.json"]
    assert world.paths("_staged") == []
    manifest = json.loads(world.store.get(world.paths("_manifests")[0], "look"))
    assert (manifest["epoch"], manifest["runtime_checkpoint"]) == (12, {"offsets": 12})
    read = pa.Table.from_batches(ParquetSink.read(world.place, ["epoch", "value", "at"], 12))
    assert read["epoch"].to_pylist() == [12, 12, 12]
    assert read.schema.field("at").type == pa.timestamp("us", tz="UTC")


def test_a_commit_has_one_effect_however_often(world: World, rows: Rows) -> None:
    first = world.run(0, rows(0))
    second = world.prepare(1, rows(1))
    for _ in range(2):
        world.sink().commit(0, first)
        world.sink().commit(1, second)
        world.sink().start(1, second, 2)
    assert world.values() == [0, 1, 2, 10, 11, 12]
    assert world.sink().committed() == {"offsets": 1}


def test_many_who_commit_at_once(world: World, rows: Rows) -> None:
    handle = world.prepare(0, rows(0))
    sinks = [world.sink() for _ in range(8)]
    run_together([partial(sink.commit, 0, handle) for sink in sinks])
    assert world.values() == [0, 1, 2]


def test_an_abort_and_an_epoch_without_rows_leave_nothing(world: World, rows: Rows) -> None:
    for frame in (rows(0), rows(0, 0), None):
        handle = world.prepare(0, frame)
        for _ in range(2):
            world.sink().abort(0, handle)
        assert (world.paths("data"), world.paths("_staged"), world.values()) == ([], [], [])
    world.sink().commit(0, {})


def test_a_start_removes_all_but_what_was_decided(world: World, rows: Rows) -> None:
    world.prepare(0, rows(0))
    decided = world.prepare(0, rows(0))
    world.prepare(1, rows(1))
    theirs = world.prepare(1, rows(1), fence=3)
    world.sink().start(0, decided, 2)
    assert {path.split("/")[1] for path in world.paths("data")} == {decided["staged"], theirs["staged"]}
    world.sink().commit(0, decided)
    assert world.values() == [0, 1, 2]


@pytest.mark.full
def test_a_process_that_is_killed_before_the_decision_leaves_nothing(world: World, rows: Rows) -> None:
    run_killed("parquet", world.place, "after staging")
    assert (world.values(), len(world.paths("_staged"))) == ([], 1)
    assert world.paths("data") != []
    world.sink().start(None, None, 2)
    assert (world.paths("data"), world.paths("_staged")) == ([], [])
    world.run(0, rows(0))
    assert world.values() == [0, 1, 2]


@pytest.mark.parametrize("step", ["before manifest", pytest.param("after manifest", marks=pytest.mark.full)])
def test_a_process_that_is_killed_in_the_commit(world: World, rows: Rows, step: str) -> None:
    handle = world.prepare(0, rows(0))
    run_killed("parquet", world.place, step, handle)
    assert world.values() == ([] if "before" in step else [0, 1, 2])
    assert len(world.paths("_staged")) == 1
    world.sink().start(0, handle, 2)
    world.sink().commit(0, handle)
    assert (world.values(), world.paths("_staged")) == ([0, 1, 2], [])


@pytest.mark.full
def test_a_start_whose_log_was_lost_keeps_what_is_committed(world: World, rows: Rows) -> None:
    handle = world.prepare(0, rows(0))
    run_killed("parquet", world.place, "after manifest", handle)
    world.sink().start(None, None, 2)
    assert (world.values(), world.paths("_staged")) == ([0, 1, 2], [])
    assert world.sink().committed() == {"offsets": 0}


def test_a_rewind_takes_later_epochs_back_which_then_come_again(world: World, rows: Rows) -> None:
    for number in range(3):
        world.run(number, rows(number, 1))
    for _ in range(2):
        world.sink().rewind(0)
        assert world.values() == [0]
    assert world.sink().committed() == {"offsets": 0}
    world.run(1, rows(1, 2))
    world.run(2, rows(2, 2))
    assert world.values() == [0, 10, 11, 20, 21]
    world.sink().rewind(1)
    assert world.values() == [0, 10, 11]
    world.sink().rewind(-1)
    assert (world.values(), world.sink().committed()) == ([], None)


def test_who_was_replaced_does_not_bring_back_what_was_taken_back(world: World, rows: Rows) -> None:
    world.run(0, rows(0))
    handle = world.prepare(1, rows(1))
    successor = world.sink()
    with frozen("parquet", world.place, "manifest", handle) as thaw:
        successor.start(1, handle, 2)
        successor.commit(1, handle)
        successor.rewind(0)
        assert thaw() == ""
        assert "_manifests/00000000000000000001-000000.json" in world.paths("_manifests")  # it is put again
    assert world.values() == [0, 1, 2]
    assert world.sink().committed() == {"offsets": 0}
    successor.commit(1, successor.prepare(an_epoch(1, fence=2), rows(1, 1)))
    assert world.values() == [0, 1, 2, 10]
    world.store.remove("_manifests/00000000000000000001-000000.json", "look")
    with pytest.raises(EndpointError, match="neither that nor its manifest is there"):
        world.sink().commit(1, handle)


def test_who_was_replaced_takes_back_nothing(world: World, rows: Rows) -> None:
    zombie, successor = world.sink(), world.sink()
    zombie.start(None, None, 1)
    successor.start(None, None, 2)
    successor.commit(0, successor.prepare(an_epoch(0, fence=2), rows(0)))
    with pytest.raises(Fenced, match="another coordinator has started since"):
        zombie.rewind(-1)
    with pytest.raises(Fenced):  # it was stopped before it came here
        world.sink().start(0, None, 1)
    assert world.values() == [0, 1, 2]


def test_a_place_that_another_pipeline_uses_is_refused(world: World, rows: Rows) -> None:
    ours, theirs = world.prepare(0, rows(0)), world.prepare(0, rows(0))
    world.sink().commit(0, theirs)
    with pytest.raises(EndpointError, match="has epoch 0 already, which was never decided here"):
        world.prepare(0, rows(0))
    with pytest.raises(EndpointError, match="has other rows of epoch 0 than were decided here"):
        world.sink().commit(0, ours)
    assert world.values() == [0, 1, 2]


def test_columns_may_come_and_nothing_else_may_change(world: World, rows: Rows) -> None:
    world.run(0, rows(0, 1))
    world.run(1, rows(1, 1).selectExpr("*", "'x' as new"))
    before = world.paths("data")
    with pytest.raises(SchemaError, match="has the column 'new' as string, and it comes as integer"):
        world.prepare(2, rows(2, 1).selectExpr("*", "1 as new"))
    assert (world.paths("data"), world.paths("_staged")) == (before, [])
    read = pa.Table.from_batches(ParquetSink.read(world.place, ["value", "new"], None)).to_pylist()
    assert read == [{"value": 0, "new": None}, {"value": 10, "new": "x"}]


@pytest.mark.full
def test_several_may_share_a_place_and_lay_it_out(s3_server: S3Server, s3_bucket: str, rows: Rows) -> None:
    how = {"owned": "who", "partitions": ("part",)}
    for writer in ("one", "acme's/other"):
        world = World(s3_server, s3_bucket, **how)
        world.place = Place(**{**vars(world.place), "writer": writer})
        world.run(0, rows(0, 3).selectExpr("*", f'"{writer}" as who', "concat('p ', value % 2) as part"))
        read = pa.Table.from_batches(ParquetSink.read(world.place, ["who", "part", "value"], 0)).to_pylist()
        assert sorted(row["value"] for row in read) == [0, 1, 2]
        assert {row["who"] for row in read} == {writer}
        assert {row["part"] for row in read} == {"p 0", "p 1"}
        assert list(ParquetSink.audit(world.place, {0: 3})) == []


def test_maintenance_removes_what_no_manifest_names(world: World, rows: Rows) -> None:
    world.run(0, rows(0))
    world.run(1, rows(1))
    sink = world.sink()
    sink.rewind(0)
    assert list(sink.maintain(timedelta(0), None)) == []  # until it has come again
    sink.commit(1, sink.prepare(an_epoch(1), rows(1)))
    sink.rewind(0)
    kept = world.prepare(1, rows(1))
    Staging(world.store, "_staged").remove(kept["staged"])  # what is decided is kept all the same
    assert list(world.sink().maintain(timedelta(hours=1), kept)) == []
    told = list(world.sink().maintain(timedelta(0), kept))
    assert told
    assert all("which no manifest names" in sentence for sentence in told)
    left = {path.split("/")[1] for path in world.paths("data")}
    assert len(left) == 3  # with what was taken back last
    assert kept["staged"] in left
    assert world.values() == [0, 1, 2]


def test_what_was_prepared_in_a_folder_is_committed_there(world: World, rows: Rows, tmp_path: Path) -> None:
    """The location was changed between the decision and the commit."""
    folder = tmp_path / "some orders"
    before = sink_of(folder)
    handle, never = before.prepare(an_epoch(0), rows(0)), before.prepare(an_epoch(1), rows(1))
    moved = world.sink()
    moved.start(0, handle, 2)
    moved.commit(0, handle)
    moved.abort(1, never)
    assert (values(folder), staged(folder), world.values()) == ([0, 1, 2], [], [])


def test_an_audit_says_what_is_wrong(world: World, rows: Rows) -> None:
    world.run(0, rows(0))
    assert list(ParquetSink.audit(world.place, {0: 3})) == []
    assert list(ParquetSink.audit(world.place, {0: 3, 1: 1})) == [
        "epoch 1 was committed with 1 rows, and 0 are there"
    ]
    path = world.paths("data")[0]
    world.store.remove(path, "break it")
    assert list(ParquetSink.audit(world.place, {0: 3})) == [
        f"the manifest of epoch 0 names {path}, which is not there"
    ]


def test_a_reader_sees_whole_epochs_at_every_moment(world: World, rows: Rows) -> None:
    handles = [world.prepare(number, rows(number, 2)) for number in range(3)]
    with polled(world.values) as seen:
        for number, handle in enumerate(handles):
            world.sink().commit(number, handle)
    whole = [[v for n in range(count) for v in (n * 10, n * 10 + 1)] for count in range(4)]
    assert [found for found in seen if found not in whole] == []
    assert seen[-1] == whole[-1]


def test_the_example_of_the_documentation(
    world: World, rows: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    world.run(0, rows(0))
    server = world.server
    replacing = {
        "s3://lake/orders": world.place.location,
        '"eu-central-1"': f'"{server.region}", "allow_http": "true", "endpoint": "{server.endpoint}"',
        '"AKIA..."': f'"{server.access_key}"',
        '"..."': f'"{server.secret_key}"',
        "S3FileSystem(": f'S3FileSystem(endpoint_override="{server.endpoint}", ',
    }
    run_examples("docs/sinks/parquet.md", replacing)
    assert capsys.readouterr().out.strip() == "[(3, 3)]"


def test_folders_have_no_manifests(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is a folder, which has no manifests"):
        read_manifests(tmp_path.as_uri())
    with pytest.raises(ConfigError, match="'nonsense' is not valid"):
        ParquetSink("orders", Place("s3://bucket/x", "view", options={"nonsense": "1"}))
