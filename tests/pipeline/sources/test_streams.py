"""What sources do while a pipeline runs, and between its first start and its first epoch."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyiceberg.types import StringType
from pyspark.sql import SparkSession

from devtools.kafka_broker import KafkaBroker
from headrace.errors import ConfigError, Transient
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.ingest.iceberg.tables import Tables
from headrace.model.collections import Collection
from headrace.pipeline.coordinator import RetryPolicy
from headrace.pipeline.pipeline import Pipeline
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import FormatSource, KafkaSource, PipelineSettings, Trigger
from headrace.pipeline.sources.streams import (
    OpenedSource,
    check_starts,
    open_sources,
    source_from_dataframe,
    starts_of,
)
from headrace.wal.batches import PLACE_FIELDS
from tests.pipeline.scenario import TABLE, Recorder, Scenario
from tests.pipeline.scenarios import MakeScenario
from tests.waiting import DEADLINE_SECONDS, wait_until


def append(scenario: Scenario, orders: list[dict[str, Any]], columns: list[str]) -> None:
    """Orders to the table, with these columns of theirs; the table gets those that it lacks."""
    scenario.data.mkdir(exist_ok=True)
    tables = Tables(embedded_catalog(scenario.data))
    schema = pa.schema([TABLE.field(name) for name in columns])
    table = tables.load("orders") or tables.create("orders", schema, ("/customer",), "test")
    if set(columns) - set(table.schema().column_names):
        with table.update_schema() as update:
            update.add_column("note", StringType())
    rows = pa.Table.from_pylist(orders, schema)
    places = [
        pa.array([len(scenario.written)] * len(orders), pa.int64()),
        pa.array(range(len(orders)), pa.int32()),
    ]
    for field, column in zip(PLACE_FIELDS, places, strict=True):
        rows = rows.append_column(field, column)
    table.append(rows)
    scenario.written += [{name: order[name] for name in columns} for order in orders]


@pytest.mark.usefixtures("spark")
def test_a_column_that_a_table_gets_while_it_is_read(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the session stays, which each start would leave behind otherwise."""
    sessions: list[SparkSession] = []

    def open_and_note(spark: SparkSession, *given: Any) -> list[OpenedSource]:
        sessions.append(spark)
        return open_sources(spark, *given)

    monkeypatch.setattr("headrace.pipeline.runner.open_sources", open_and_note)
    scenario, view = make_scenario("collection", "sqlite")
    order = {"orders": 1, "cents": 5, "largest": 5}
    old = ["customer", *order]
    append(scenario, [{"customer": "ann", **order}], old)
    scenario.run()
    sessions.clear()
    recorder = Recorder()
    runner = Runner(scenario.settings(trigger=Trigger()), recorder, RetryPolicy(first_pause=0.01))
    running = threading.Thread(target=runner.run)
    running.start()
    try:
        wait_until(lambda: "running" in recorder.states)
        for name in ("ann", "bob"):
            append(scenario, [{"customer": name, **order, "note": f"of {name}"}], [*old, "note"])
        wait_until(lambda: sum(epoch.read for epoch in recorder.epochs) == 2)
    finally:
        runner.stop()
        running.join()
    assert not runner.failures
    assert len(sessions) > 1
    assert len(set(map(id, sessions))) == 1
    assert any("'orders' has other columns or partitions than" in state for state in recorder.states)
    scenario.assert_exact(view())


def from_the_end(settings: PipelineSettings) -> PipelineSettings:
    (one,) = settings.materializations
    (binding,) = one.bindings
    assert isinstance(binding.source, KafkaSource)
    source = replace(binding.source, starting_offsets="latest")
    return replace(settings, materializations=(replace(one, bindings=(replace(binding, source=source),)),))


def one_partition_from_the_end(settings: PipelineSettings) -> PipelineSettings:
    (one,) = from_the_end(settings).materializations
    (binding,) = one.bindings
    assert isinstance(binding.source, KafkaSource)
    source = replace(binding.source, starting_offsets=f'{{"{binding.source.topic}": {{"0": -1, "1": -1}}}}')
    return replace(settings, materializations=(replace(one, bindings=(replace(binding, source=source),)),))


def crash(*_: object) -> None:
    raise ConfigError("the driver is gone")


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("changed", [from_the_end, one_partition_from_the_end])
def test_a_topic_is_read_from_where_it_ended_at_the_first_start(
    make_scenario: MakeScenario,
    monkeypatch: pytest.MonkeyPatch,
    changed: Callable[[PipelineSettings], PipelineSettings],
) -> None:
    """Also if that start did not get to an epoch."""
    scenario, view = make_scenario("kafka", "sqlite")
    scenario.data.mkdir()
    scenario.write(60)
    scenario.written.clear()  # they were there before

    def run() -> Runner:
        runner = Runner(changed(scenario.settings()), Recorder())
        runner.run()
        return runner

    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "_stream", crash)
        assert run().failures
    scenario.write(60)
    assert not run().failures
    scenario.write(60)
    assert not run().failures
    scenario.assert_exact(view())


MESSAGES = Collection(
    "orders",
    ("/topic", "/partition", "/offset"),
    {
        "type": "object",
        "required": ["topic", "partition", "offset"],
        "properties": {
            "topic": {"type": "string"},
            "partition": {"type": "integer"},
            "offset": {"type": "integer"},
        },
    },
)


@pytest.mark.usefixtures("spark")
def test_topics_of_a_format_are_read_from_where_they_ended_at_the_first_start(
    make_scenario: MakeScenario, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start is kept like that of any topic, and messages that are gone are missed before anything is."""
    scenario, _ = make_scenario("kafka", "sqlite")
    second = f"{scenario.topic}-2"  # the first one's name, and a partition as it seems
    kafka_broker.create_topic(second, partitions=1)
    scenario.data.mkdir()

    def write(first: int, other: int) -> None:
        scenario.write(first)
        replace(scenario, topic=second).write(other)

    options = {"kafka.bootstrap.servers": scenario.bootstrap, "subscribe": f"{second}, {scenario.topic}"}
    (binding,) = scenario.settings().materializations[0].bindings
    source = FormatSource("kafka", options, ("offset",))
    changes: dict[str, Any] = {
        "bindings": (replace(binding, collection=MESSAGES, source=source, rules=()),),
        "dead_letters": None,
    }
    write(20, 5)
    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "_stream", crash)
        with pytest.raises(ConfigError, match="the driver is gone"):
            scenario.run(**changes)
    write(20, 5)
    assert sum(epoch.read for epoch in scenario.run(**changes).epochs) == 25
    with closing(sqlite3.connect(scenario.endpoint["path"])) as database:
        assert database.execute("SELECT count(*) FROM orders WHERE topic = ?", (second,)).fetchone() == (5,)
    write(20, 5)
    admin = AdminClient({"bootstrap.servers": scenario.bootstrap})
    for removed in admin.delete_records([TopicPartition(second, 0, 11)]).values():
        removed.result(DEADLINE_SECONDS)
    with pytest.raises(ConfigError, match=f"topic {second} has no messages any more at 10 to 10 of part"):
        scenario.run(**changes)
    assert sum(epoch.read for epoch in scenario.run(accepts_loss=["view"], **changes).epochs) == 24


def test_two_first_starts_at_once_do_not_begin_at_two_places() -> None:
    def reading(**start: int) -> OpenedSource:
        return OpenedSource(None, lambda rows: rows, "kafka topic t", start=start)  # type: ignore[arg-type]

    kept = starts_of([reading(), reading(p0=7, p1=9)])
    assert kept == {"starts": {"1": {"p0": 7, "p1": 9}}}
    assert starts_of([reading()]) == {}
    check_starts([reading(), reading(p0=7, p1=9, p2=-2)], kept)
    check_starts([reading()], {})
    with pytest.raises(Transient, match="another process has started this materialization"):
        check_starts([reading(), reading(p0=8, p1=9)], kept)


def test_rows_of_one_order_have_one_last(spark: SparkSession) -> None:
    """Whatever way they come: an epoch that is replayed has to become the same."""
    schema = {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "x": {"type": "string"}},
    }
    things = Collection("things", ("/id",), schema)
    rows = [(1, text, 5) for text in "abcdefgh"]
    found = []
    for given in (rows, rows[::-1]):
        frame = spark.createDataFrame(given, "id long, x string, at int")
        made = source_from_dataframe(frame, things, ("at",), "rows").frame(frame)
        found.append([row["x"] for row in made.orderBy("_order").select("x").collect()])
    assert found[0] == found[1]


def write_overlapping_files(scenario: Scenario) -> None:
    """Partitions the table, and writes one commit in which either file has the last row of a key."""
    table = Tables(embedded_catalog(scenario.data)).load("orders")
    assert table is not None
    with table.update_spec() as update:
        update.add_identity("note")
    rows = [("ann", "b"), ("ann", "a"), ("bob", "a"), ("bob", "b")]
    orders = [{"customer": name, "orders": 1, "cents": 5, "largest": 5, "note": note} for name, note in rows]
    scenario._append(orders)
    scenario.written += orders


@pytest.mark.usefixtures("spark")
def test_a_commit_is_not_cut_where_its_files_overlap(make_scenario: MakeScenario) -> None:
    """Of one key a file may have the first row and the file read before it the last one."""
    scenario, view = make_scenario("collection", "sqlite")
    scenario.is_latest = True
    scenario.write(1)
    write_overlapping_files(scenario)
    recorder = scenario.run()
    assert [epoch.read for epoch in recorder.epochs] == [5]
    scenario.assert_exact(view())


@pytest.mark.usefixtures("spark")
def test_an_epoch_that_was_planned_before_its_table_was_partitioned(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits with which the stream was opened have cut the first partitioned commit in two."""
    scenario, view = make_scenario("collection", "sqlite")
    scenario.is_latest = True
    scenario.write(1)
    scenario.run()
    stream = Pipeline._stream

    def partition_and_stream(pipeline: Pipeline, folder: Path) -> None:
        monkeypatch.setattr(Pipeline, "_stream", stream)
        write_overlapping_files(scenario)
        stream(pipeline, folder)

    monkeypatch.setattr(Pipeline, "_stream", partition_and_stream)
    recorder = scenario.run()
    assert any("has other columns or partitions than" in state for state in recorder.states)
    scenario.assert_exact(view())
    assert [epoch.read for epoch in recorder.epochs] == [4]


@pytest.mark.usefixtures("spark")
def test_a_topic_that_was_deleted_and_created_again(
    make_scenario: MakeScenario, kafka_broker: KafkaBroker
) -> None:
    """Its first messages have the offsets of those that were read."""
    scenario, view = make_scenario("kafka", "sqlite")
    scenario.write(3)
    scenario.run()
    before = view()
    kafka_broker.delete_topic(scenario.topic)
    kafka_broker.create_topic(scenario.topic, partitions=2)
    scenario.write(5)
    with pytest.raises(ConfigError, match=r"which was topic .* with id .* and is topic .* created again"):
        scenario.run()
    assert view() == before


@pytest.mark.usefixtures("spark")
def test_a_folder_of_files_whose_list_is_lost(make_scenario: MakeScenario) -> None:
    """Which files were read is in Spark's checkpoint folder alone: it is not made anew without that."""
    scenario, _ = make_scenario("collection", "sqlite")
    (binding,) = scenario.settings().materializations[0].bindings
    files = scenario.folder / "files"
    files.mkdir()
    (files / "first.json").write_text(json.dumps({"customer": "ann", "orders": 1, "cents": 7}))
    schema = "customer STRING, orders BIGINT, cents BIGINT, largest BIGINT, note STRING"
    source = FormatSource("json", {"path": files.as_uri()}, ("customer",), schema)
    changed = {"bindings": (replace(binding, source=source),)}
    assert len(scenario.run(**changed).epochs) == 1
    folder = scenario.state / "checkpoint"
    kept = folder.rename(folder.with_name("kept"))
    with pytest.raises(ConfigError, match="keeps a list of the files that were read in it that cannot be"):
        scenario.run(**changed)
    kept.rename(folder)
    (files / "second.json").write_text(json.dumps({"customer": "ann", "orders": 1, "cents": 5}))
    assert [epoch.read for epoch in scenario.run(**changed).epochs] == [1]
