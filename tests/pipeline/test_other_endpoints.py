"""Endpoints that keep no checkpoint: the recovery log decides, and Acknowledge follows every epoch."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pyarrow.dataset
import pytest
from pyspark.sql import DataFrame
from redis import Redis

from headrace.errors import ConfigError
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.committing import EpochCommitter
from headrace.pipeline.connector_sink import ConnectorSink, _combined_meanwhile
from headrace.pipeline.coordinator import Coordinator
from headrace.sinks.contract import Epoch
from headrace.testing.runtime import combine
from tests.connectors.webhook_endpoint import Receiver
from tests.pipeline.scenario import COLLECTION, Scenario
from tests.waiting import DEADLINE_SECONDS

pytestmark = pytest.mark.usefixtures("spark")


def deltas(folder: Path) -> list[dict[str, Any]]:
    """All rows of all files, in the order of their names; null is what a document does not have."""
    files = sorted((folder / "orders/data").glob("*.parquet"))
    rows = [row for file in files for row in pyarrow.dataset.dataset(file).to_table().to_pylist()]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


@pytest.mark.full  # test_decisive_faults.py publishes files
def test_files_are_published_with_each_epoch_also_when_shards_change(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    scenario = Scenario(tmp_path, "files", {"url": str(folder)}, 2, resource={"prefix": "orders"})
    scenario.write(60)
    scenario.run()
    for shards in (3, 1):
        scenario.shards = shards
        for file in folder.rglob("*"):  # so old that what nobody knows of is removed
            os.utime(file, times=(time.time() - 10 * 86_400,) * 2)
        scenario.write(60)
        scenario.write(60)
        scenario.run()
        assert combine(COLLECTION, deltas(folder)) == scenario.expected, "the last epoch is published too"
    scenario.assert_exact(list(combine(COLLECTION, deltas(folder)).values()))


def test_without_checkpoints_in_the_endpoint_the_folder_is_made_from_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "lake"
    scenario = Scenario(tmp_path, "files", {"url": str(folder)}, resource={"prefix": "orders"})
    scenario.write(60)
    scenario.run()
    shutil.rmtree(scenario.state / "checkpoint")
    scenario.write(60)
    assert [epoch.epoch for epoch in scenario.run().epochs] == [1]
    assert combine(COLLECTION, deltas(folder)) == scenario.expected


def test_an_epoch_is_read_and_combined_while_the_one_before_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its commit waits for that here, and so it would never end if it were waited for first."""
    folder = tmp_path / "lake"
    scenario = Scenario(tmp_path, "files", {"url": str(folder)}, 2, resource={"prefix": "orders"})
    scenario.write(60)
    scenario.write(60)
    combined = threading.Event()
    commit = ConnectorSink.commit

    def slow(self: ConnectorSink, epoch: int, handle: JsonObject) -> None:
        assert epoch > 0 or combined.wait(DEADLINE_SECONDS), "the next epoch waits for this one"
        commit(self, epoch, handle)

    @contextmanager
    def watched(epoch: Epoch, frames: list[DataFrame]) -> Iterator[None]:
        def wait() -> None:
            if epoch.number:
                assert all(frame.storageLevel.useMemory for frame in frames), "what was combined is kept"
                combined.set()
            epoch.wait_for_previous()

        with _combined_meanwhile(replace(epoch, wait_for_previous=wait), frames):
            yield
        assert not any(frame.storageLevel.useMemory for frame in frames)

    monkeypatch.setattr(ConnectorSink, "commit", slow)
    monkeypatch.setattr("headrace.pipeline.connector_sink._combined_meanwhile", watched)
    recorder = scenario.run()
    assert recorder.states == ["running", "done"]
    assert len(recorder.epochs) == 2
    scenario.assert_exact(list(combine(COLLECTION, deltas(folder)).values()))


@pytest.mark.parametrize(
    ("part", "step"),
    [pytest.param(Coordinator, "_decide", marks=pytest.mark.full), (EpochCommitter, "commit")],
    ids=["before the decision", "after the decision"],
)
def test_files_of_an_epoch_that_was_interrupted(
    tmp_path: Path, part: type, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "lake"
    scenario = Scenario(tmp_path, "files", {"url": str(folder)}, 2, resource={"prefix": "orders"})
    scenario.write(60)

    def interrupted(*_: object) -> None:
        raise ConfigError("as if the process had been killed here")

    with monkeypatch.context() as patch:
        patch.setattr(part, step, interrupted)
        with pytest.raises(ConfigError, match="been killed here"):
            scenario.run()
    assert deltas(folder) == []
    scenario.write(60)
    scenario.run()
    scenario.assert_exact(list(combine(COLLECTION, deltas(folder)).values()))


@pytest.mark.full  # tests/certify/test_decisive_faults.py kills and freezes it
def test_redis(tmp_path: Path, redis_url: str) -> None:
    scenario = Scenario(tmp_path, "redis", {"url": redis_url}, 3, resource={"prefix": "orders"})
    for _ in range(2):
        scenario.write(60)
        scenario.run()
    with Redis.from_url(redis_url) as client:
        keys = list(client.scan_iter("orders:*"))
        found = [orjson.loads(client.get(key)) for key in keys]
    scenario.assert_exact(found)


@pytest.mark.full  # tests/certify/test_decisive_faults.py kills and freezes it
def test_webhook(tmp_path: Path) -> None:
    with Receiver() as receiver:
        scenario = Scenario(
            tmp_path, "webhook", {"address": receiver.address}, 2, resource={"path": "orders"}
        )
        for _ in range(2):
            scenario.write(60)
            scenario.run()
        documents = [document for request in receiver.received for document in request.documents]
        assert combine(COLLECTION, documents) == scenario.expected
        assert len(set(receiver.keys)) == len(receiver.keys)
