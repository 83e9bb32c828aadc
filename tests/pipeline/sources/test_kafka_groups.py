"""A consumer group follows beside the stream: no epoch waits for Kafka, and one client is kept."""

from __future__ import annotations

import json
import logging
import threading
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from devtools.kafka_broker import KafkaBroker
from headrace.model.collections import Collection
from headrace.pipeline.settings import (
    BindingSettings,
    CollectionSource,
    KafkaSource,
    MaterializationSettings,
    Source,
)
from headrace.pipeline.sources import kafka_groups
from headrace.pipeline.sources.kafka_groups import KafkaGroups
from tests.waiting import DEADLINE_SECONDS

ORDERS = Collection("orders", ("/id",), {"type": "object", "properties": {"id": {"type": "integer"}}})


def settings(*topics: str, bootstrap: str = "127.0.0.1:1") -> MaterializationSettings:
    """The first binding reads a collection, the others a topic each."""
    sources: list[Source] = [CollectionSource("orders"), *(KafkaSource(bootstrap, topic) for topic in topics)]
    return MaterializationSettings(
        "view", "sqlite", {}, tuple(BindingSettings(ORDERS, source, {}) for source in sources)
    )


def offsets(*positions: Any) -> str:
    return "\n".join(["v1", "{}", "-", *(json.dumps(one) if one else "-" for one in positions)])


class SlowGroup:
    """Tells Kafka only when it is let; in place of the client that Spark's process has."""

    def __init__(self) -> None:
        self.name = "slow"
        self.told: list[Any] = []
        self.begun, self.may_go_on = threading.Semaphore(0), threading.Semaphore(0)
        self.is_closed = False

    def commit(self, positions: Any) -> None:
        self.begun.release()
        self.may_go_on.acquire()
        if positions == {"orders": {"0": 13}}:
            raise RuntimeError("no luck\n  at some.Java")
        self.told.append(positions)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> SlowGroup:
    group = SlowGroup()
    monkeypatch.setattr(kafka_groups, "_Group", lambda *_: group)
    monkeypatch.setattr(kafka_groups, "_LAST_SECONDS", DEADLINE_SECONDS)
    return group


def test_nobody_waits_and_what_was_overtaken_is_left_out(slow: SlowGroup) -> None:
    none: Any = None
    with KafkaGroups(none, settings("orders")) as groups:
        groups.follow(offsets({"orders": {"0": 1}}))
        assert slow.begun.acquire(timeout=DEADLINE_SECONDS)
        for number in range(2, 6):
            groups.follow(offsets({"orders": {"0": number}}))
        for _ in range(2):
            slow.may_go_on.release()
    assert slow.told == [{"orders": {"0": 1}}, {"orders": {"0": 5}}]
    assert slow.is_closed


def test_a_failure_is_logged_and_changes_nothing_else(
    slow: SlowGroup, caplog: pytest.LogCaptureFixture
) -> None:
    none: Any = None
    for _ in range(2):
        slow.may_go_on.release()
    with caplog.at_level(logging.WARNING), KafkaGroups(none, settings("orders")) as groups:
        groups.follow(offsets({"orders": {"0": 13}}))
        assert slow.begun.acquire(timeout=DEADLINE_SECONDS)
        groups.follow(offsets({"orders": {"0": 14}}))
    assert slow.told == [{"orders": {"0": 14}}]
    assert caplog.messages == ["materialization 'view': consumer group slow does not follow: no luck"]


def test_an_end_does_not_wait_for_ever(slow: SlowGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_groups, "_LAST_SECONDS", 0.05)
    none: Any = None
    with KafkaGroups(none, settings("orders")) as groups:
        groups.follow(offsets({"orders": {"0": 1}}))
    assert slow.told == []
    slow.may_go_on.release()


def test_one_client_tells_kafka_again_and_again(
    kafka_broker: KafkaBroker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_groups, "_TIMEOUT_MS", round(1000 * DEADLINE_SECONDS))
    monkeypatch.setattr(kafka_groups, "_LAST_SECONDS", DEADLINE_SECONDS)
    topic = f"orders-{uuid4().hex}"
    kafka_broker.create_topic(topic, partitions=2)
    reads = settings(topic, bootstrap=kafka_broker.bootstrap)
    group = kafka_groups._Group(spark, KafkaSource(kafka_broker.bootstrap, topic), "headrace-view")
    group.commit({topic: {"0": 0, "1": 0}})
    client = group._admin
    group.commit({topic: {"0": 1, "1": 2}})
    assert group._admin is client
    group.close()
    with KafkaGroups(spark, reads) as groups:
        groups.follow(offsets({topic: {"0": 3, "1": 4}}))
        groups.follow(offsets(None))
        groups.follow(offsets({topic: {"0": 5, "1": 6}}))
    consumer = Consumer({"bootstrap.servers": kafka_broker.bootstrap, "group.id": "headrace-view"})
    try:
        found = consumer.committed(
            [TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=DEADLINE_SECONDS
        )
    finally:
        consumer.close()
    assert [one.offset for one in found] == [5, 6]
