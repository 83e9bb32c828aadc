"""Dead letters go with their epoch, in either format, and are read back without Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import ConfigError, UnexpectedFailure
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.model.collections import Collection
from headrace.objects import ObjectStore
from headrace.pipeline.coordinator import Coordinator
from headrace.pipeline.dead_letters.sink import DeadLetterSink, make_dead_letter_sink
from headrace.pipeline.dead_letters.store import DeadLetter, read_dead_letters
from headrace.pipeline.quality.apply import apply_rules
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import (
    Action,
    BindingSettings,
    CollectionSource,
    DeadLetterSettings,
    Profile,
    Rule,
)
from headrace.pipeline.sinks import EpochRows
from headrace.pipeline.sources.frames import frame_of_columns
from headrace.sinks.contract import Epoch
from tests.pipeline.scenario import Recorder
from tests.pipeline.scenarios import MakeScenario

NAME = "acme's/view"
PROPERTIES = {"id": {"type": "integer"}, "amount": {"type": "number"}}
ORDERS = Collection("orders", ("/id",), {"type": "object", "properties": PROPERTIES, "required": ["id"]})
BINDING = BindingSettings(
    ORDERS, CollectionSource("orders"), {}, rules=(Rule("paid", not_null=("amount",)),), invalid=Action.DROP
)
AT = datetime(2026, 11, 16, 8, 0, 0, 123456, tzinfo=UTC)


class Crash(BaseException):
    """The end of the process, as far as it can be played in one."""


class World:
    def __init__(self, spark: SparkSession, folder: Path, form: str) -> None:
        self.spark = spark
        self.catalog: CatalogSettings = embedded_catalog(folder).model_copy(
            update={"name": f"dead_{uuid4().hex}"}
        )
        location = "quality.dead" if form == "iceberg" else (folder / "_dead").as_uri()
        self.settings = DeadLetterSettings(form, location)
        self.store = ObjectStore((folder / "state").as_uri())

    def sink(self, name: str = NAME, *, forgets: bool = False) -> DeadLetterSink:
        return make_dead_letter_sink(self.settings, name, self.spark, self.catalog, forgets=forgets)

    def rows(self, epoch: int, count: int = 2, name: str = NAME) -> EpochRows:
        if not count:
            return EpochRows([])
        dead = self.spark.range(count, numPartitions=1).select(
            F.lit(name).alias("materialization"),
            F.lit("orders").alias("collection"),
            F.lit(0).alias("binding"),
            F.lit(epoch).cast("bigint").alias("epoch"),
            F.lit((AT + timedelta(hours=epoch)).isoformat()).cast("timestamp").alias("failed_at"),
            F.array(F.lit("positive"), F.format_string("odd%s", F.col("id") % 2)).alias("rules"),
            F.format_string('{"id": %d, "price": 1.10}', F.col("id")).alias("row"),
            F.format_string(f'{{"_lsn":{epoch},"_row":%d}}', F.col("id")).alias("source"),
        )
        return EpochRows([], dead=dead, dead_count=count)

    def letters(self, name: str = NAME, **which: object) -> list[DeadLetter]:
        found = read_dead_letters(self.settings, name, self.catalog, **which)  # type: ignore[arg-type]
        return sorted(found, key=lambda letter: letter.order)

    def epochs(self) -> list[int]:
        return [letter.epoch for letter in self.letters()]


@pytest.fixture(params=["parquet", "iceberg"])
def world(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path, request.param)


def an_epoch(number: int) -> Epoch:
    return Epoch(number, 1, {}, lambda: None)


def test_a_letter_is_read_as_it_was_written(world: World) -> None:
    assert world.letters() == []
    handle = world.sink().prepare(an_epoch(3), world.rows(3))
    assert (handle["rows"], world.letters()) == (2, [])
    world.sink().commit(3, handle)
    first, second = world.letters()
    assert first == DeadLetter(
        materialization=NAME,
        collection="orders",
        binding=0,
        epoch=3,
        failed_at=AT + timedelta(hours=3),
        rules=("positive", "odd0"),
        row='{"id": 0, "price": 1.10}',
        source='{"_lsn":3,"_row":0}',
    )
    assert first.to_json(replayed=False) == (
        f'{{"id":"{first.id}","materialization":"acme\'s/view","collection":"orders","binding":0,"epoch":3,'
        '"failed_at":"2026-11-16T11:00:00.123456+00:00","rules":["positive","odd0"],"replayed":false,'
        '"source":{"_lsn":3,"_row":0},"row":{"id": 0, "price": 1.10}}'
    )
    assert second.id != first.id


def test_letters_are_chosen_by_rule_epoch_time_and_materialization(world: World) -> None:
    for name in (NAME, "other"):
        sink = world.sink(name)
        for number in range(2):
            sink.commit(number, sink.prepare(an_epoch(number), world.rows(number, name=name)))
    assert world.epochs() == [0, 0, 1, 1]
    assert [letter.epoch for letter in world.letters(epoch=1, rule="odd1")] == [1]
    assert [letter.epoch for letter in world.letters(since=AT + timedelta(minutes=1))] == [1, 1]
    assert world.letters(rule="nosuch") == []
    assert len(world.letters("other")) == 4
    world.sink().rewind(0)
    assert (world.epochs(), len(world.letters("other"))) == ([0, 0], 4)


def test_a_number_that_is_not_what_was_counted_stops_the_epoch(world: World) -> None:
    rows = EpochRows([], dead=world.rows(0, 2).dead, dead_count=3)
    with pytest.raises(UnexpectedFailure, match="3 rows of epoch 0 are dead and 2 dead letters were written"):
        world.sink().prepare(an_epoch(0), rows)
    with pytest.raises(UnexpectedFailure, match="1 rows of epoch 0 are dead and 0 dead letters"):
        world.sink().prepare(an_epoch(0), EpochRows([], dead_count=1))


def test_a_commit_goes_to_where_it_was_prepared_whatever_is_configured_now(
    world: World, tmp_path: Path
) -> None:
    handle = world.sink().prepare(an_epoch(0), world.rows(0))
    never = world.sink().prepare(an_epoch(1), world.rows(1))
    before, other = world.settings, "parquet" if world.settings.format == "iceberg" else "iceberg"
    places = {
        "parquet": [(tmp_path / "elsewhere").as_uri(), (tmp_path / "_dead").as_uri()],
        "iceberg": ["quality.elsewhere", "quality.dead"],
    }
    world.settings = DeadLetterSettings(before.format, places[before.format][0])
    world.sink().start(0, handle, 2)
    world.sink().commit(0, handle)
    world.settings = DeadLetterSettings(other, places[other][1])
    sink = world.sink()
    sink.start(0, handle, 2)
    for _ in range(2):
        sink.commit(0, handle)
    sink.abort(1, never)
    assert world.letters() == []
    world.settings = before
    assert world.epochs() == [0, 0]


def test_a_state_that_survives_nothing_lets_epochs_come_again(world: World) -> None:
    """Each of these is a run of its own, whose recovery log and fence begin anew."""
    for _ in range(2):
        sink = world.sink(forgets=True)
        sink.start(None, None, 1)
        for number in range(2):
            sink.commit(number, sink.prepare(an_epoch(number), world.rows(number)))
        sink.prepare(an_epoch(2), world.rows(2))  # and then it was killed
        assert world.epochs() == [0, 0, 1, 1]
    # An endpoint that keeps its place brings the run back to it, with a log that is as new.
    sink = world.sink(forgets=True)
    sink.start(None, None, 1)
    sink.commit(2, sink.prepare(an_epoch(2), world.rows(2)))
    assert world.epochs() == [0, 0, 1, 1, 2, 2]
    # Within a run nothing is taken back.
    sink = world.sink(forgets=True)
    sink.start(2, None, 2)
    sink.commit(3, sink.prepare(an_epoch(3), world.rows(3)))
    assert world.epochs() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("form", ["iceberg", pytest.param("hudi", marks=pytest.mark.full)])
def test_fences_of_a_run_that_nobody_knows_of_are_forgotten(
    spark: SparkSession, tmp_path: Path, form: str
) -> None:
    """Each run goes on after an error that went away, so it has more fences than one; the first has most."""
    world = World(spark, tmp_path, form)
    for fence in (3, 2):
        sink = world.sink(forgets=True)
        sink.start(None, None, 1)
        handle = sink.prepare(an_epoch(0), world.rows(0))
        sink.commit(0, handle)
        again = world.sink(forgets=True)
        again.start(0, handle, fence)
        again.commit(1, again.prepare(Epoch(1, fence, {}, lambda: None), world.rows(1)))
        assert world.epochs() == [0, 0, 1, 1]


@pytest.mark.usefixtures("spark")
def test_a_pipeline_whose_state_survives_nothing_runs_again(make_scenario: MakeScenario) -> None:
    scenario, documents = make_scenario("collection", "sqlite")
    scenario.write(50)
    settings = replace(scenario.settings(), profile=Profile.DEV_LOCAL)
    for _ in range(2):
        runner = Runner(settings, Recorder())
        runner.run()
        assert runner.failures == {}
        scenario.assert_exact(documents())
        Path(scenario.endpoint["path"]).unlink()


def test_a_sink_that_had_nothing_to_commit_may_be_removed(world: World) -> None:
    coordinator = Coordinator(RecoveryLog(world.store, "log"), [world.sink()])
    coordinator.start()
    coordinator._commits.shutdown()  # so that the epoch is decided, and no more
    with pytest.raises(RuntimeError, match="shutdown"):
        coordinator.run(0, {"offsets": 0}, world.rows(0, 0))
    without = Coordinator(RecoveryLog(world.store, "log"), [])
    assert without.start().decision is not None
    without.close()


def run_epochs(world: World, first: int, last: int, observe: Callable[[str], None]) -> None:
    coordinator = Coordinator(RecoveryLog(world.store, "log"), [world.sink()], observe=observe)
    try:
        coordinator.start()
        for number in range(first, last + 1):
            coordinator.run(number, {"offsets": number}, world.rows(number, number % 3))
        coordinator.close()
        coordinator.settle()
    finally:
        coordinator._commits.shutdown(wait=True)  # with a process its threads end too


STEPS = 1 + 2 * 3  # of two epochs: opened; prepared, decided, committed


def test_a_crash_after_any_step_neither_loses_nor_repeats(world: World) -> None:
    """Each crash is on top of those before; the epochs go on where the recovery log says."""
    expected: list[int] = []
    number = 0
    for step in range(STEPS):
        seen = 0

        def crash(_: str, step: int = step) -> None:
            nonlocal seen
            seen += 1
            if seen > step:
                raise Crash

        with pytest.raises(Crash):
            run_epochs(world, number, number + 1, crash)
        decided = RecoveryLog(world.store, "log").read().decision
        number = decided.epoch + 1 if decided else 0
    run_epochs(world, number, number + 1, lambda _: None)
    expected = [epoch for epoch in range(number + 2) for _ in range(epoch % 3)]
    assert world.epochs() == expected


def test_rows_of_a_stream_are_judged_and_staged_in_its_own_session(world: World, tmp_path: Path) -> None:
    """Spark gives a stream a copy of the session, which is where a write looks for its settings."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in/rows.json").write_text('{"id": 1, "amount": 1.0}\n{"id": 2}\n')
    stream = world.spark.readStream.schema("id bigint, amount double").json(str(tmp_path / "in"))
    sink, seen = world.sink(), []

    def run(rows: DataFrame, number: int) -> None:
        frame = frame_of_columns(rows.schema, ORDERS, ["id"])(rows)
        with apply_rules(rows, [frame], [BINDING], materialization=NAME, epoch=number, at=AT) as result:
            handle = sink.prepare(
                an_epoch(number), EpochRows([], dead=result.dead, dead_count=result.dead_count)
            )
            seen.append((handle["rows"], world.letters(), result.good[0].count()))
        sink.commit(number, handle)

    query = stream.writeStream.foreachBatch(run).trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    assert seen == [(1, [], 1)]
    (letter,) = world.letters()
    assert (letter.rules, letter.row, letter.failed_at) == (("paid",), '{"id":2}', AT)


@pytest.mark.parametrize(
    ("settings", "has_catalog", "said"),
    [
        (DeadLetterSettings("parquet", ""), True, "have no location"),
        (DeadLetterSettings("csv", "/x"), True, "have the format 'csv': delta or hudi or"),
        (DeadLetterSettings("iceberg", "dead"), False, "there is no catalog"),
    ],
)
def test_what_cannot_be(
    spark: SparkSession, tmp_path: Path, settings: DeadLetterSettings, has_catalog: bool, said: str
) -> None:
    catalog = embedded_catalog(tmp_path) if has_catalog else None
    with pytest.raises(ConfigError, match=said):
        make_dead_letter_sink(settings, "view", spark, catalog)
