"""Audits of topics from which brokers remove messages, and which may not be taken for lost ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from devtools.kafka_broker import KafkaBroker
from headrace.sinks.kafka import KafkaSink
from headrace.sinks.kafka_task import prepare_shard
from tests.sinks.kafka_world import World, handle_of
from tests.waiting import DEADLINE_SECONDS


def publish(world: World, epoch: int, values: Mapping[str, int]) -> None:
    """Messages by their keys."""
    shipment = world.shipment(epoch)
    texts = [f'{{"value": {value}}}' for value in values.values()]
    batch = pa.RecordBatch.from_pydict({"key": list(values), "value": texts})
    prepared = prepare_shard(shipment, 0, [batch])
    assert prepared is not None
    world.sink().commit(epoch, handle_of(shipment, [prepared.to_json()]))


def remove_before(world: World, offsets: Mapping[int, int]) -> None:
    """As retention does, for each partition."""
    admin = AdminClient({"bootstrap.servers": world.broker.bootstrap})
    wanted = [TopicPartition(world.topic, partition, offset) for partition, offset in offsets.items()]
    for future in admin.delete_records(wanted).values():
        future.result(DEADLINE_SECONDS)


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    world = World(kafka_broker)
    world.sink().start(None, None, 1)
    return world


def test_what_retention_has_removed_is_not_missing(world: World) -> None:
    for epoch in range(4):
        publish(world, epoch, {"a": 1, "b": 2, "c": 3})
    decided = dict.fromkeys(range(4), 3)
    first, place = world.messages(), world.place()
    remove_before(world, {0: first[4].offset() or 0})  # all of epoch 0, and a part of epoch 1
    assert world.by_epoch() == {1: 2, 2: 3, 3: 3}
    assert list(KafkaSink.audit(place, decided)) == []
    assert list(KafkaSink.audit(place, {**decided, 1: 1, 3: 4})) == [
        "epoch 1 was committed with 1 rows, and 2 are there",
        "epoch 3 was committed with 4 rows, and 3 are there",
    ]
    remove_before(world, {0: -1})  # all that there is
    assert list(KafkaSink.audit(place, decided)) == []


def test_one_partition_from_which_all_is_removed(kafka_broker: KafkaBroker) -> None:
    world = World(kafka_broker, partitions=2)
    world.sink().start(None, None, 1)
    for epoch in range(2):
        publish(world, epoch, dict.fromkeys("abcdefgh", 1))
    assert {message.partition() for message in world.messages()} == {0, 1}
    assert list(KafkaSink.audit(world.place(), {0: 8, 1: 9})) == [
        "epoch 1 was committed with 9 rows, and 8 are there"
    ]
    remove_before(world, {1: -1})
    assert list(KafkaSink.audit(world.place(), {0: 8, 1: 8})) == []


def test_a_compacted_topic_may_have_fewer_messages_and_not_more(kafka_broker: KafkaBroker) -> None:
    world = World(kafka_broker, config={"cleanup.policy": "compact"})
    world.sink().start(None, None, 1)
    for epoch in range(2):
        publish(world, epoch, {"a": 1, "b": 2, "c": 3})
    # What brokers have compacted cannot be told from what was never there.
    assert list(KafkaSink.audit(world.place(), {0: 5, 1: 3})) == []
    assert list(KafkaSink.audit(world.place(), {0: 3, 1: 2})) == [
        "epoch 1 was committed with 2 rows, and 3 are there"
    ]


def test_an_epoch_that_was_never_decided_and_is_there(world: World) -> None:
    publish(world, 0, {"a": 1})
    publish(world, 1, {"a": 1})
    assert list(KafkaSink.audit(world.place(), {0: 1}, lambda: 1)) == []
    assert list(KafkaSink.audit(world.place(), {0: 1}, lambda: 0)) == [
        "epoch 1 was never decided, and 1 rows of it are there"
    ]


def test_a_topic_that_is_not_there(world: World) -> None:
    place = replace(world.place(), location=f"{world.topic}-gone")
    for _ in range(2):  # and is not made by who asks
        assert list(KafkaSink.audit(place, {0: 2, 1: 0})) == [
            "epoch 0 was committed with 2 rows, and 0 are there"
        ]
