"""A clean-up that fails after the decisive step does not make that step fail."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from devtools.s3_server import S3Server
from headrace.errors import ConfigError, EndpointUnavailable, Fenced, HeadraceError, UnexpectedFailure
from headrace.objects import ObjectStore
from headrace.pipeline.dead_letters.sink import DeadLetterSink
from headrace.pipeline.recovery_log import Decision, RecoveryLog
from headrace.pipeline.sinks import EpochRows
from headrace.sinks import openings, parquet_objects
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.contract import Place
from headrace.sinks.delta import DeltaSink
from headrace.sinks.hudi_tables import HudiTable
from headrace.sinks.iceberg import IcebergSink
from headrace.sinks.iceberg_tables import JavaTable
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.kafka_checkpoints import Checkpoints, Record
from headrace.sinks.openings import Openings
from headrace.sinks.parquet import ParquetSink
from headrace.sinks.parquet_folder import FolderRows
from tests.sinks import hudi_world
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.iceberg_world import World, catalog, settings, world
from tests.sinks.parquet_place import committed, sink_of, staged, values
from tests.sinks.s3_place import s3_options

__all__ = ["catalog", "settings", "world"]

Logged = Callable[[], list[str]]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Logged:
    """Returns a function that takes what clean-up has logged since its last call."""
    caplog.set_level(logging.WARNING, "headrace.sinks.cleanup")

    def take() -> list[str]:
        messages = [record.getMessage() for record in caplog.records if record.name.endswith(".cleanup")]
        caplog.clear()
        return messages

    return take


@contextmanager
def refusing(owner: Any, name: str, error: Exception) -> Iterator[None]:
    """Makes calls of a function raise the error."""

    def refuse(*_: Any, **__: Any) -> Any:
        raise error

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, refuse)
        yield


def no_removal(error: HeadraceError | None = None) -> Any:
    """Makes the object store refuse every removal."""
    return refusing(ObjectStore, "remove", error or EndpointUnavailable("the store removes nothing"))


def test_a_failure_is_logged_in_one_line_and_left(logged: Logged) -> None:
    for error in (EndpointUnavailable("no answer"), ConfigError("no answer"), OSError("no answer\nat all")):
        with cleaning_up("remove what is old"):
            raise error
        (said,) = logged()
        assert said.startswith("cannot remove what is old, which is left to the next clean-up: ")
        assert said.endswith("no answer")


@pytest.mark.parametrize("error", [Fenced("somebody else runs"), KeyboardInterrupt()])
def test_who_was_replaced_or_interrupted_stops(error: BaseException) -> None:
    with pytest.raises(type(error)), cleaning_up("remove what is old"):
        raise error


def test_a_decision_is_made_and_settled_where_old_records_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    monkeypatch.setattr("headrace.pipeline.recovery_log._KEPT", 0)
    monkeypatch.setattr("headrace.pipeline.recovery_log._REMOVED_EVERY", 1)
    store = ObjectStore(tmp_path.as_uri())
    log = RecoveryLog(store, "log")
    log.open()
    with no_removal(ConfigError("this user may not remove")):
        for epoch in range(2):
            log.decide(Decision(epoch, {"offsets": epoch}))
            log.settle()
    assert len(logged()) == 4
    found = log.read()
    assert found.decision is not None
    assert (found.decision.epoch, found.is_settled) == (1, True)
    log.decide(Decision(2, {}))
    assert len(store.list("log", "look")) == 1


def test_a_place_is_taken_where_old_records_cannot_be_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    monkeypatch.setattr(openings, "_KEPT", 0)
    store = ObjectStore(tmp_path.as_uri())
    place = Openings(store, "_openings", "orders")
    with no_removal():
        assert [place.take(None, fence).number for fence in (1, 2)] == [1, 2]
        with pytest.raises(Fenced):
            place.take(5, 1)
    assert len(logged()) == 1
    assert place.take(5, 3).number == 3
    assert len(store.list("_openings", "look")) == 1


@pytest.mark.parametrize("keys", [(), ("value",)], ids=["append", "view"])
def test_delta(
    tmp_path: Path, spark: SparkSession, rows: Rows, keys: tuple[str, ...], logged: Logged
) -> None:
    place = Place(tmp_path.as_uri(), "view", keys=keys)

    def sink() -> DeltaSink:
        return DeltaSink("orders", place, spark)

    def found() -> list[int]:
        batches = DeltaSink.read(place, ["value"], None)
        return sorted(value for batch in batches for value in batch.column(0).to_pylist())

    def left() -> list[str]:
        return [path.name for path in tmp_path.rglob("_headrace/*/staged/*")]

    handle = sink().prepare(an_epoch(0), rows(0, 2))
    never = sink().prepare(an_epoch(1), rows(1, 1))
    with no_removal():
        for _ in range(2):
            sink().commit(0, handle)
            assert found() == [0, 1]
            assert len(logged()) == 1
        sink().start(0, handle, 2)
        assert logged()
        assert sink().prepare(an_epoch(1, fence=2), rows(1, 0)) == {}
        assert logged()
    assert {handle["staged"], never["staged"]} <= {name.removesuffix(".json") for name in left()}
    sink().start(0, None, 3)
    assert (left(), found(), logged()) == ([], [0, 1], [])
    with pytest.raises(Fenced):
        sink().start(0, None, 2)


def test_parquet_in_a_bucket(s3_server: S3Server, s3_bucket: str, rows: Rows, logged: Logged) -> None:
    place = Place(f"s3://{s3_bucket}/orders", "view", options=s3_options(s3_server))
    store = ObjectStore(place.location, s3_server.obstore_options())

    def sink() -> ParquetSink:
        return ParquetSink("orders", place)

    def found() -> list[int]:
        batches = ParquetSink.read(place, ["value"], None)
        return sorted(value for batch in batches for value in batch.column(0).to_pylist())

    with no_removal():
        for number in range(2):
            sink().commit(number, sink().prepare(an_epoch(number), rows(number, 1)))
            assert logged()
        successor = sink()
        successor.start(1, None, 2)
        assert logged()
        successor.rewind(0)
        assert (found(), logged()) == ([0], [])
        successor.commit(1, successor.prepare(an_epoch(1, fence=2), rows(1, 2)))
        assert (found(), len(logged())) == ([0, 10, 11], 2)
        why = ConfigError("this is what went wrong")
        with refusing(parquet_objects, "stage", why), pytest.raises(ConfigError, match="what went wrong"):
            sink().prepare(an_epoch(2), rows(2, 1))
        logged()
    last = sink()
    last.start(1, None, 3)
    assert (store.list("_staged", "look"), found(), logged()) == ([], [0, 10, 11], [])
    last.commit(2, last.prepare(an_epoch(2, fence=3), rows(2, 1)))
    assert len(store.list("_manifests", "look")) == 3


def test_parquet_in_a_folder(tmp_path: Path, rows: Rows, logged: Logged) -> None:
    folder = tmp_path / "orders"
    for number in range(2):
        committed(folder, number, rows(number, 1))
    sink_of(folder).prepare(an_epoch(2), rows(2, 1))
    with refusing(FolderRows, "_remove", OSError(5, "Input/output error")):
        successor = sink_of(folder)
        successor.start(1, None, 2)
        assert (len(logged()), len(staged(folder))) == (1, 1)
        successor.rewind(0)
        assert (values(folder), logged()) == ([0], [])
        broken = rows(1, 1).selectExpr("cast(raise_error('no such luck') as bigint) as value")
        with pytest.raises(UnexpectedFailure, match="Spark cannot write"):
            successor.prepare(an_epoch(1, fence=2), broken)
        logged()
        again = successor.prepare(an_epoch(1, fence=2), rows(1, 1))
        successor.commit(1, again)
        assert (values(folder), len(logged())) == ([0, 10], 1)
    last = sink_of(folder)
    last.start(1, again, 3)
    assert staged(folder) == []
    last.commit(1, again)
    assert (values(folder), list((folder / "_rewound").iterdir())) == ([0, 10], [])


def test_hudi(tmp_path: Path, spark: SparkSession, logged: Logged) -> None:
    table = hudi_world.World(spark, tmp_path)
    handle = table.sink().prepare(an_epoch(0), table.rows(0, k1=10))
    never = table.sink().prepare(an_epoch(1), table.rows(1, k1=11))
    notes = tmp_path / "table" / ".hoodie" / "headrace" / "view%2Frows"
    with refusing(HudiTable, "remove_note", OSError(5, "Input/output error")):
        for _ in range(2):
            table.sink().commit(0, handle)
            assert (table.state(), len(logged())) == ([(1, 10)], 1)
        table.sink().start(0, handle, 2)
        with refusing(HudiTable, "roll_back", OSError(5, "Input/output error")):
            table.sink().start(0, handle, 3)
        assert len(logged()) >= 2
        with pytest.raises(Fenced):
            table.sink().start(0, None, 2)
        # Fences of a lost log would fence off a new start, so removing them is not clean-up.
        with pytest.raises(OSError, match="Input/output error"):
            table.sink().start(None, None, 1)

    def left() -> set[str]:
        return {note.name for note in notes.iterdir() if note.suffix != ".crc"}

    assert left() == {handle["note"], never["note"]}
    table.sink().start(0, None, 4)
    assert (left(), table.pending(), table.state()) == (set(), set(), [(1, 10)])


@pytest.mark.full  # Iceberg looks for the file for 15 s; in test_iceberg_s3.py several commit at once
def test_iceberg_whose_manifests_another_one_removes(
    world: World, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    """Two processes publish one epoch, and each finds files that the other has already removed."""
    world.publish(0, k1=10)
    handle = world.view().prepare(an_epoch(1), world.rows(k1=11))
    never = world.view().prepare(an_epoch(2), world.rows(k1=12))
    world.append_by_hand(k7=77)
    expire = JavaTable.expire

    def too_late(table: JavaTable, snapshots: Any) -> None:
        for number in snapshots:
            remove_manifests(table, number)
        expire(table, snapshots)

    monkeypatch.setattr(JavaTable, "expire", too_late)
    world.view().commit(1, handle)
    assert (world.state(), len(logged())) == ([(1, 11), (7, 77)], 1)
    world.view().start(1, handle, 2)
    assert len(logged()) == 1
    monkeypatch.undo()
    assert never["snapshot_id"] not in {one.snapshot_id for one in world.table.snapshots()}
    world.view().start(1, handle, 3)
    assert (world.branches(), world.state(), logged()) == ([], [(1, 11), (7, 77)], [])


def remove_manifests(table: JavaTable, number: int) -> None:
    snapshot = table.state().snapshot(number)
    manifests = snapshot.allManifests(table.java.io())
    files = [one.path() for one in manifests if one.snapshotId() == number]  # those of other snapshots stay
    for file in (*files, snapshot.manifestListLocation()):
        Path(urlsplit(file).path).unlink(missing_ok=True)


def test_iceberg_whose_branch_another_one_removes(
    world: World, monkeypatch: pytest.MonkeyPatch, logged: Logged
) -> None:
    world.publish(0, k1=10)
    world.view().prepare(an_epoch(1), world.rows(k1=11))
    remove_staged = JavaTable.remove_staged

    def twice(table: JavaTable, *arguments: Any) -> None:
        remove_staged(table, *arguments)
        remove_staged(table, *arguments)

    monkeypatch.setattr(JavaTable, "remove_staged", twice)
    world.view().start(0, None, 2)
    assert (world.state(), world.branches(), len(logged())) == ([(1, 10)], [], 1)


@pytest.mark.parametrize("kind", ["view", "append"])
def test_iceberg_of_which_another_one_publishes_and_removes_what_is_done_again(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sink = world.view if kind == "view" else world.sink
    sink().commit(0, sink().prepare(an_epoch(0), world.rows(k1=10)))
    handle = sink().prepare(an_epoch(1), world.rows(k1=11))
    world.append_by_hand(k7=77)
    do_again = IcebergSink._do_again

    def overtaken(slow: IcebergSink, *arguments: Any) -> int:
        """Lets another process commit after we have read the table and before we act on it."""
        monkeypatch.undo()
        sink().commit(1, handle)
        sink().start(1, None, 2)
        return do_again(slow, *arguments)

    monkeypatch.setattr(IcebergSink, "_do_again", overtaken)
    sink().commit(1, handle)
    after = [(1, 11), (7, 77)] if kind == "view" else [(1, 10), (1, 11), (7, 77)]
    assert world.state() == after


def test_kafka_that_cannot_abort_says_so(logged: Logged) -> None:
    sink = KafkaSink("orders", Place("topic", "view", options={"bootstrap": "127.0.0.1:1"}))
    record = Record(1, 0, 1, "attempt", {}, {})
    with refusing(Checkpoints, "read_all", EndpointUnavailable("no answer")):
        sink._abort_attempt(record)
    assert len(logged()) == 1


def test_dead_letters_that_cannot_be_aborted(tmp_path: Path, spark: SparkSession, rows: Rows) -> None:
    sink = DeadLetterSink("parquet", Place(tmp_path.as_uri(), "view"), spark)
    sink.start(None, None, 1)
    miscounted = EpochRows([], dead=rows(0, 2), dead_count=3)
    with (
        refusing(ParquetSink, "abort", ConfigError("no abort")),
        pytest.raises(UnexpectedFailure, match="3 rows of epoch 0 are dead and 2 dead letters were written"),
    ):
        sink.prepare(an_epoch(0), miscounted)
