"""Pipelines from end to end, in one process: shards that change, several bindings, retries, late tables."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import CheckpointMoved, ConfigError, Fenced, SchemaError, StreamBroken
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.ingest.iceberg.tables import Tables
from headrace.model.collections import Collection
from headrace.pipeline.coordinator import Coordinator, RetryPolicy
from headrace.pipeline.quality.apply import RuleResult, apply_rules
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import Action, Limits, PipelineSettings, Trigger
from headrace.pipeline.state_paths import open_recovery_log
from headrace.testing.runtime import combine
from tests.pipeline.scenario import COLLECTION, SCHEMA, Recorder
from tests.pipeline.scenarios import MakeScenario, sqlite_columns
from tests.waiting import wait_until

pytestmark = pytest.mark.usefixtures("spark")


@pytest.mark.parametrize(
    ("source", "endpoint", "changes"),
    [
        pytest.param("collection", "sqlite", (3,), id="collection-sqlite"),
        pytest.param("collection", "sqlite", (3, 1), id="collection-fewer", marks=pytest.mark.full),
        pytest.param("collection", "postgres", (4, 3, 1), id="collection-postgres", marks=pytest.mark.full),
        pytest.param("kafka", "sqlite", (4, 3, 1), id="kafka-sqlite", marks=pytest.mark.full),
        pytest.param("kafka", "postgres", (4, 3, 1), id="kafka-postgres", marks=pytest.mark.full),
    ],
)
def test_the_number_of_shards_changes(
    make_scenario: MakeScenario, source: str, endpoint: str, changes: tuple[int, ...]
) -> None:
    scenario, view = make_scenario(source, endpoint)
    scenario.write(60)
    scenario.run()
    before = 1
    for shards in changes:
        scenario.shards = shards
        scenario.write(60)
        scenario.write(60)
        first, *rest = (epoch.shards for epoch in scenario.run().epochs)
        assert first == before, "it may have been begun before the change"
        assert set(rest) == {shards}
        before = shards
    scenario.assert_exact(view())


def test_counts_add_up(make_scenario: MakeScenario, spark: SparkSession) -> None:
    scenario, view = make_scenario("collection", "sqlite", 2)
    scenario.write(200)
    (epoch,) = scenario.run().epochs
    assert (epoch.read, epoch.good, epoch.dead) == (200, len(scenario.good), len(scenario.dead))
    assert epoch.good + epoch.dead == epoch.read
    assert epoch.documents == epoch.good
    assert epoch.keys == epoch.stored == len(scenario.expected)
    assert epoch.failed == {"positive": epoch.dead}
    scenario.assert_exact(view())


@pytest.mark.parametrize("left_out", [(), pytest.param(("_document",), marks=pytest.mark.full)])
def test_nothing_is_loaded_where_the_last_write_wins(
    make_scenario: MakeScenario, left_out: tuple[str, ...]
) -> None:
    scenario, _ = make_scenario("collection", "sqlite", 2)
    schema = {**SCHEMA, "reduce": {"strategy": "lastWriteWins"}}
    for _ in range(2):
        scenario.write(60)
        settings = scenario.settings()
        (one,) = settings.materializations
        (binding,) = one.bindings
        collection = Collection("orders", ("/customer",), schema)
        changed = replace(one, bindings=(replace(binding, collection=collection, exclude=left_out),))
        recorder = Recorder()
        runner = Runner(replace(settings, materializations=(changed,)), recorder)
        runner.run()
        assert not runner.failures
        assert [epoch.loaded for epoch in recorder.epochs] == [0]
    with closing(sqlite3.connect(scenario.endpoint["path"])) as database:
        found = database.execute("SELECT * FROM orders ORDER BY customer")
        names = [column[0] for column in found.description]
        rows = [dict(zip(names, row, strict=True)) for row in found]
    expected = {document["customer"]: document for document in scenario.good}
    assert [row["customer"] for row in rows] == sorted(expected)
    for row in rows:
        document = expected[row["customer"]]
        assert ("_document" in row) == (not left_out)
        if not left_out:
            assert json.loads(row["_document"]) == document
        plain = {name: value for name, value in document.items() if name in row}
        assert {name: row[name] for name in plain} == plain


def test_a_state_folder_with_a_space_in_its_name(make_scenario: MakeScenario, tmp_path: Path) -> None:
    scenario, view = make_scenario("collection", "sqlite")
    scenario.write(60)
    settings = replace(scenario.settings(), state_url=(tmp_path / "my state").as_uri())
    runner = Runner(settings, Recorder())
    runner.run()
    assert not runner.failures
    assert (tmp_path / "my state/materializations/view/checkpoint/offsets/0").exists()
    assert combine(COLLECTION, view()) == scenario.expected


def test_several_bindings_are_one_epoch(make_scenario: MakeScenario) -> None:
    """From a collection and from Kafka, into two tables, with one checkpoint for both.

    One is combined by Spark and loaded; of the other the tasks find the latest rows.
    """
    scenario, view = make_scenario("collection", "sqlite", 2)
    other, _ = make_scenario("kafka", "sqlite")
    other.is_latest = True
    scenario.write(60)
    other.write(60)
    other.data.mkdir(exist_ok=True)

    def both() -> PipelineSettings:
        (mine,) = (settings := scenario.settings()).materializations
        (theirs,) = other.settings().materializations
        second = replace(theirs.bindings[0], resource={"table": "others"})
        together = replace(mine, bindings=(mine.bindings[0], second), limits=Limits())
        return replace(settings, materializations=(together,))

    recorder = Recorder()
    for _ in range(2):
        runner = Runner(both(), recorder)
        runner.run()
        assert not runner.failures
        scenario.write(60)
    scenario.written = scenario.written[:-60]  # the last ones nobody has read
    assert [epoch.read for epoch in recorder.epochs] == [120, 60]
    assert combine(COLLECTION, view()) == scenario.expected
    assert combine(other.collection, sqlite_columns(scenario.endpoint["path"], "others")) == other.expected


def test_a_pipeline_waits_for_its_table(make_scenario: MakeScenario) -> None:
    scenario, view = make_scenario("collection", "sqlite")
    scenario.data.mkdir()
    with pytest.raises(ConfigError, match=r"there is no catalog at .*catalog\.db: start `headrace serve`"):
        scenario.run()
    Tables(embedded_catalog(scenario.data)).load("orders")  # makes an empty catalog, as a server does
    with pytest.raises(ConfigError, match="collection 'orders' has no table yet: write to it first"):
        scenario.run()
    recorder = Recorder()
    runner = Runner(scenario.settings(trigger=Trigger()), recorder)
    running = threading.Thread(target=runner.run)
    running.start()
    try:
        wait_until(lambda: any("waiting: collection 'orders' has no" in state for state in recorder.states))
        scenario.write(60)
        wait_until(lambda: len(recorder.epochs) == 1)
        log = open_recovery_log(scenario.settings(), "view")
        wait_until(lambda: log.read().is_settled, "the log's word that dead letters are committed")
    finally:
        runner.stop()
        running.join()
    assert not runner.failures
    log.record_failure("a start that failed")
    scenario.run()
    assert log.failure() == "", "a start that succeeds clears it, also where there is nothing to read"
    scenario.assert_exact(view())


def test_what_fails_for_a_while_is_tried_again(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, view = make_scenario("collection", "sqlite", 2)
    scenario.write(60)
    decide, failures = Coordinator._decide, [1]

    def flaky(self: Coordinator, *given: Any) -> None:
        failures[0] -= 1
        if failures[0] == 0:
            raise StreamBroken("the endpoint went away")
        decide(self, *given)

    monkeypatch.setattr(Coordinator, "_decide", flaky)
    recorder = Recorder()
    runner = Runner(scenario.settings(), recorder, RetryPolicy(first_pause=0.01))
    runner.run()
    assert not runner.failures
    assert any("failed, again in 0 s: the endpoint went away" in state for state in recorder.states)
    scenario.assert_exact(view())


def test_other_rows_than_were_judged_are_never_committed(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A source gives other rows when it is read again, to be combined."""
    scenario, view = make_scenario("collection", "sqlite", 2)
    scenario.write(60)
    seen: list[bool] = []

    @contextmanager
    def read_otherwise(*given: Any, **options: Any) -> Iterator[RuleResult]:
        with apply_rules(*given, **options) as result:
            seen.append(True)
            twice = tuple(frame.union(frame) for frame in result.good)
            yield result if len(seen) > 1 else replace(result, good=twice)

    monkeypatch.setattr("headrace.pipeline.pipeline.apply_rules", read_otherwise)
    recorder = Recorder()
    runner = Runner(scenario.settings(), recorder, RetryPolicy(first_pause=0.01))
    runner.run()
    assert not runner.failures
    assert any(
        re.search(r"shard \d: \d+ rows are good and \d+ were combined", one) for one in recorder.states
    )
    (epoch,) = recorder.epochs
    assert not epoch.is_replayed, "nothing was committed the first time"
    scenario.assert_exact(view())


def test_one_that_was_taken_over_is_not_started_again(
    make_scenario: MakeScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However its tasks failed for that."""
    scenario, view = make_scenario("collection", "sqlite", 2)
    scenario.write(60)
    settings = scenario.settings()

    def taken_over(*_: object) -> None:
        open_recovery_log(settings, "view").open()
        raise CheckpointMoved("a task found the endpoint elsewhere")

    monkeypatch.setattr("headrace.pipeline.connector_sink.run_shards", taken_over)
    with pytest.raises(Fenced, match="was taken over by"):
        scenario.run()
    assert view() == []


@pytest.mark.usefixtures("spark")
def test_what_postgres_cannot_take_is_a_dead_letter(make_scenario: MakeScenario) -> None:
    scenario, view = make_scenario("collection", "postgres")
    order = {"customer": "ann", "orders": 1, "cents": 5, "largest": 5, "note": "fine"}
    changes = [{"note": "a\x00b"}, {"customer": "a\x00b"}, {"customer": long_key(12_016)}]
    unfit = [{**order, **change} for change in changes]
    good = [order, {**order, "customer": long_key(2600)}]
    scenario._append([*unfit, *good])
    with pytest.raises(SchemaError, match=r"the endpoint cannot take it \(endpoint:/(note|customer)\)"):
        scenario.run()
    (binding,) = scenario.settings().materializations[0].bindings
    (epoch,) = scenario.run(bindings=(replace(binding, invalid=Action.DROP),)).epochs
    assert (epoch.read, epoch.dead) == (5, 3)
    assert combine(COLLECTION, view()) == combine(COLLECTION, good)


def long_key(length: int) -> str:
    """Of characters that cannot be compressed."""
    return Random(length).randbytes(length).hex()[:length]
