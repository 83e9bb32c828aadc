"""Targets of a certification on shared servers: what they read there and what they remove."""

from __future__ import annotations

from uuid import uuid4

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from redis import Redis

from devtools.kafka_broker import KafkaBroker
from headrace.certify.documents import BATCH, document
from headrace.certify.feeds import KafkaFeed
from headrace.certify.targets.kafka import KafkaTarget
from headrace.certify.targets.postgres import PostgresTarget
from headrace.certify.targets.redis import RedisTarget
from headrace.certify.targets.served import ServedTarget
from headrace.certify.targets.target import APPEND, VIEW
from headrace.errors import ConfigError
from headrace.kafka.config import ClientOptions
from tests.waiting import DEADLINE_SECONDS, wait_until


@pytest.fixture
def lane() -> str:
    """Returns a name that is unique on the shared servers."""
    return f"lane-{uuid4().hex}"


def test_a_transaction_that_is_open_is_told_and_not_read(kafka_broker: KafkaBroker, lane: str) -> None:
    target = KafkaTarget(kafka_broker.bootstrap, {})
    target.place(lane)
    identity = f"headrace/{lane}/x/0"
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": identity})
    producer.init_transactions()
    producer.begin_transaction()
    value = orjson.dumps({**document(1), "seen": "[1]"})
    producer.produce(f"headrace-certify-{lane}", value, headers={"headrace.epoch": b"0"})
    producer.flush()
    assert target.left_over(lane) == [f"transaction {identity}"]
    assert target.read(lane)[APPEND].documents == []
    producer.commit_transaction()
    # The broker answers before the commit has reached the partitions.
    wait_until(lambda: target.left_over(lane) == [], "the end of the transaction")
    assert target.read(lane)[APPEND].documents == [document(1)]
    target.remove(lane)
    assert target.read(lane)[APPEND].documents == []


def test_nothing_of_a_source_in_kafka_is_left(kafka_broker: KafkaBroker, lane: str) -> None:
    topic, bootstrap = f"source-{uuid4().hex}", kafka_broker.bootstrap
    feed = KafkaFeed(ClientOptions(bootstrap), topic)
    feed.write()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"headrace-{lane}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, BATCH)], asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    assert f"headrace-{lane}" in {group.group_id for group in listed.valid}
    feed.remove([lane, f"{lane}-2"])
    assert topic not in admin.list_topics(timeout=DEADLINE_SECONDS).topics
    listed = admin.list_consumer_groups().result(DEADLINE_SECONDS)
    assert f"headrace-{lane}" not in {group.group_id for group in listed.valid}
    feed.remove([lane])


def test_redis_has_nothing_of_a_lane_that_was_removed(redis_url: str, lane: str) -> None:
    target = RedisTarget({"url": redis_url})
    with Redis.from_url(redis_url) as client:
        client.set(f"headrace-certify:{lane}:key", orjson.dumps(document(1)))
        client.set(f"headrace-certify:{lane}-2:key", orjson.dumps(document(2)))
        for one in (lane, f"{lane}-2"):
            client.hset("headrace:layouts", f"headrace-certify:{one}", "{}")
            client.hset("headrace:stored", f"headrace-certify:{one}", "1")
            client.hset(f"headrace:fences:{one}", "00000000-ffffffff", "somebody")
        assert target.read(lane)[VIEW].documents == [document(1)]
        target.remove(lane)
        assert sorted(client.keys(f"*{lane}*")) == [
            f"headrace-certify:{lane}-2:key".encode(),
            f"headrace:fences:{lane}-2".encode(),
        ]
        for noted in ("headrace:layouts", "headrace:stored"):
            assert not client.hexists(noted, f"headrace-certify:{lane}")
            assert client.hexists(noted, f"headrace-certify:{lane}-2")
        target.remove(f"{lane}-2")


def test_without_a_copy_postgres_goes_back_to_nothing(postgres_url: str) -> None:
    target = PostgresTarget({"url": postgres_url})
    target.save("lane")
    target.restore("lane")
    assert target.read("lane")[VIEW].documents == []


def test_lanes_of_a_connector_have_resources_of_their_own() -> None:
    with pytest.raises(ConfigError, match=r"is the same for all lanes: write {lane}"):
        ServedTarget("sqlite", {"path": "view.db"}, {"table": "view"})
    target = ServedTarget("sqlite", {"path": "view.db"}, {"table": "v_{lane}", "delta_updates": False})
    assert target.place("a-b").binding["resource"] == {"table": "v_a_b", "delta_updates": False}
