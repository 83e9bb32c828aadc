"""A connector as a sink, on a real SQLite file: how it takes shards over from whoever ran before."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from headrace.connectors.sqlite import SqliteConnector
from headrace.errors import CheckpointMoved, ProtocolError
from headrace.model.checkpoints import START, JsonObject
from headrace.pipeline.connector_sink import ConnectorSink
from headrace.pipeline.plan import apply, plan
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint, read_checkpoint, without_takeover_marker
from headrace.pipeline.settings import BindingSettings, CollectionSource, MaterializationSettings
from headrace.pipeline.shards.ranges import shard_ranges
from headrace.pipeline.shards.transaction import ShardJob, ShardResult, transact
from headrace.pipeline.sinks import EpochRows
from headrace.protocol.messages import Delivery, StartedCommit
from headrace.protocol.stream import ConnectorStream
from headrace.sinks.contract import Epoch
from headrace.testing import samples

SHARDS = 2


def at(epoch: int, run: str = "") -> JsonObject:
    """`run` tells two ways to plan an epoch from each other."""
    return RuntimeCheckpoint("sales", "ours", epoch, ("orders",), {epoch: f"offsets {epoch}{run}"}).to_json()


class Endpoint:
    """A SQLite file, and who opens it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        binding = BindingSettings(samples.ORDERS, CollectionSource("orders"), {"table": "orders"})
        self.settings = MaterializationSettings("sales", "sqlite", {"path": str(path)}, (binding,))
        self.planned = plan(self.settings)
        apply(self.planned)
        ranges = tuple(shard_ranges(SHARDS))
        self._job = ShardJob(self.settings, self.planned.materialization, ranges, START, START)

    def driver(self) -> ConnectorSink:
        sink = ConnectorSink(self.settings, self.planned.materialization, lambda: SHARDS, ())
        sink.start(None, None, 1)
        return sink

    def task(self, shard: int, previous: JsonObject, target: JsonObject) -> ShardResult:
        return transact(replace(self._job, previous=previous, target=target), shard, iter(()))

    def checkpoints(self) -> list[JsonObject]:
        with closing(sqlite3.connect(self.path)) as database:
            found = database.execute("SELECT checkpoint FROM headrace_checkpoints ORDER BY key_begin")
            return [json.loads(text) for (text,) in found]


@pytest.fixture
def endpoint(tmp_path: Path) -> Endpoint:
    return Endpoint(tmp_path / "sales.db")


def test_a_task_that_wakes_up_late_does_not_find_where_its_epoch_begins(endpoint: Endpoint) -> None:
    first = endpoint.driver()
    first.fence_previous_tasks(START, None)
    before = first._previous
    second = endpoint.driver()
    second.fence_previous_tasks(START, None)
    for late in (START, before):
        with pytest.raises(CheckpointMoved):
            endpoint.task(1, late, at(0))
    assert not endpoint.task(1, second._previous, at(0)).was_done
    assert [without_takeover_marker(found) for found in endpoint.checkpoints()] == [START, at(0)]


def test_a_mark_changes_nothing_for_who_reads_the_checkpoint(endpoint: Endpoint) -> None:
    for shard in range(SHARDS):
        endpoint.task(shard, START, at(0))
    endpoint.driver().fence_previous_tasks(at(0), None)
    first, second = endpoint.checkpoints()
    assert first == second != at(0)
    assert read_checkpoint(first, "sales", "endpoint") == read_checkpoint(at(0), "sales", "endpoint")
    endpoint.driver().fence_previous_tasks(at(0), None)
    assert endpoint.checkpoints()[0] not in (first, at(0))


def test_a_shard_that_has_the_next_epoch_is_left_as_it_is(endpoint: Endpoint) -> None:
    first = endpoint.driver()
    first.fence_previous_tasks(START, None)
    endpoint.task(0, first._previous, at(0))
    second = endpoint.driver()
    second.fence_previous_tasks(START, at(0))
    assert endpoint.task(0, second._previous, at(0)).was_done
    assert not endpoint.task(1, second._previous, at(0)).was_done
    assert endpoint.checkpoints() == [at(0), at(0)]


def test_an_epoch_that_the_log_lost_is_known_again_though_it_was_marked(endpoint: Endpoint) -> None:
    for shard in range(SHARDS):
        endpoint.task(shard, START, at(0))
    endpoint.driver().fence_previous_tasks(at(0), None)
    endpoint.driver().fence_previous_tasks(START, at(0))
    assert endpoint.checkpoints() == [at(0), at(0)]


def test_a_shard_that_moves_meanwhile_is_looked_at_again(endpoint: Endpoint) -> None:
    driver = endpoint.driver()
    endpoint.task(1, START, at(0))
    with pytest.raises(CheckpointMoved, match="a task of another process used a shard while it was taken"):
        driver.fence_previous_tasks(START, None)
    with pytest.raises(CheckpointMoved):
        driver.fence_previous_tasks(START, at(0, run=" otherwise"))


def test_a_task_that_opens_a_shard_meanwhile_is_no_reason_to_stop(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who was really replaced learns that from the recovery log."""
    driver = endpoint.driver()
    send, others = ConnectorStream.send, [endpoint.driver]

    def overtaken(self: ConnectorStream, response: Any) -> None:
        send(self, response)
        if type(response).__name__ == "Flushed" and others:
            others.pop()()

    monkeypatch.setattr(ConnectorStream, "send", overtaken)
    with pytest.raises(CheckpointMoved):
        driver.fence_previous_tasks(START, None)


def test_what_a_connector_says_when_it_is_taken_over_is_kept(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counting:
        def __init__(self, stream: ConnectorStream) -> None:
            self._stream = stream

        def __getattr__(self, name: str) -> Any:
            return getattr(self._stream, name)

        def send(self, response: Any) -> None:
            said = StartedCommit({"seen": 1}) if isinstance(response, StartedCommit) else response
            self._stream.send(said)

    transactions = SqliteConnector.transactions
    monkeypatch.setattr(
        SqliteConnector,
        "transactions",
        lambda self, stream: transactions(self, cast(ConnectorStream, Counting(stream))),
    )
    driver = endpoint.driver()
    driver.fence_previous_tasks(START, None)
    assert list(driver._checkpoints.values()) == [{"seen": 1}] * SHARDS


class Combined:
    """Stands for a DataFrame, and says what is done with it."""

    def __init__(self, steps: list[str]) -> None:
        self._steps = steps

    def persist(self) -> Combined:
        return self

    def count(self) -> None:
        self._steps.append("combined")

    def unpersist(self) -> None:
        self._steps.append("forgotten")


def rows_of(steps: list[str]) -> EpochRows:
    return EpochRows([cast(DataFrame, Combined(steps))])


@pytest.mark.parametrize(
    ("keeps_checkpoints", "is_committed", "expected"),
    [
        pytest.param(False, False, ["combined", "waited", "transacted", "forgotten"], id="still committing"),
        pytest.param(False, True, ["waited", "transacted"], id="committed"),
        pytest.param(True, False, ["transacted"], id="authoritative"),
    ],
)
def test_an_epoch_is_combined_while_the_one_before_is_committed(
    endpoint: Endpoint,
    monkeypatch: pytest.MonkeyPatch,
    keeps_checkpoints: bool,
    is_committed: bool,
    expected: list[str],
) -> None:
    """And its shards are opened after that; where there is nothing to wait for, nothing is kept for it."""
    steps: list[str] = []

    def transacted(*_: object) -> list[ShardResult]:
        steps.append("transacted")
        return [ShardResult(shard) for shard in range(SHARDS)]

    monkeypatch.setattr("headrace.pipeline.connector_sink.run_shards", transacted)
    driver = endpoint.driver()
    if not keeps_checkpoints:
        driver.opened = None
    epoch = Epoch(1, 1, at(1), lambda: steps.append("waited"), lambda: is_committed)
    driver.prepare(epoch, rows_of(steps))
    assert steps == expected


def test_a_handle_is_empty_when_nothing_is_left_to_commit_or_to_keep(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    state: list[JsonObject | None] = [None]
    monkeypatch.setattr(
        "headrace.pipeline.connector_sink.run_shards",
        lambda *_: [ShardResult(shard, connector_checkpoint=state[0]) for shard in range(SHARDS)],
    )
    driver = endpoint.driver()
    epoch = Epoch(1, 1, at(1), lambda: None)
    assert driver.prepare(epoch, rows_of([])) == {}
    state[0] = {"seen": 1}
    kept = driver.prepare(epoch, rows_of([]))
    assert list(kept["connector_checkpoints"].values()) == [{"seen": 1}] * SHARDS
    state[0], driver.opened = None, None
    assert driver.prepare(epoch, rows_of([])), "it is told of the commit"


def test_a_connector_whose_checkpoints_are_not_those_of_its_delivery_is_refused(
    endpoint: Endpoint,
) -> None:
    planned = endpoint.planned.materialization
    staged = ConnectorSink(endpoint.settings, planned, lambda: SHARDS, {Delivery.STAGED})
    with pytest.raises(ProtocolError, match="stages rows until Acknowledge, and yet Opened has a runtime"):
        staged.start(None, None, 1)
    forgetful = ConnectorSink(endpoint.settings, planned, lambda: SHARDS, {Delivery.TRANSACTIONAL})
    with pytest.raises(ProtocolError, match="and yet Opened has no runtime checkpoint"):
        forgetful._check_deliveries()
