"""Targets of a certification in servers: PostgreSQL, Redis, Kafka, a bucket, and a connector over gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import orjson
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from redis import Redis

from devtools.kafka_broker import KafkaBroker
from devtools.s3_server import S3Server
from headrace.certify.documents import BATCH, document
from headrace.certify.feeds import KafkaFeed
from headrace.certify.targets.delta import DeltaTarget
from headrace.certify.targets.files import FilesTarget
from headrace.certify.targets.kafka import KafkaTarget
from headrace.certify.targets.parquet import ParquetTarget
from headrace.certify.targets.postgres import PostgresTarget
from headrace.certify.targets.redis import LatestRedisTarget, RedisTarget
from headrace.certify.targets.served import ServedTarget
from headrace.certify.targets.target import APPEND, VIEW, Target
from headrace.errors import ConfigError
from headrace.sinks.kafka_options import ClientOptions
from headrace.testing import ConnectorProcess
from tests.certify.lanes import Lanes
from tests.sinks.s3_place import s3_options
from tests.wal.support import await_true

LANE = "some-lane"
VERSIONED = ("postgres", "redis", "redis-latest")
Make = Callable[[str], Target]


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """By name, with the server that it needs and no other."""
    given = request.getfixturevalue
    with ExitStack() as until_end:

        def make(name: str) -> Target:
            if name == "postgres":
                return PostgresTarget({"url": given("postgres_url")})
            if name == "redis":
                return RedisTarget({"url": given("redis_url")})
            if name == "kafka":
                return KafkaTarget(given("kafka_broker").bootstrap, {})
            if name == "redis-latest":
                return LatestRedisTarget({"url": given("redis_url")})
            if name == "connector-sqlite":
                connector = until_end.enter_context(ConnectorProcess("sqlite"))
                path, resource = str(tmp_path / "view.db"), {"table": "view_{lane}"}
                return ServedTarget("sqlite", {"path": path}, resource, connector.address)
            server: S3Server = given("s3_server")
            bucket, options = f"s3://{given('s3_bucket')}/some/folder", s3_options(server)
            if name == "files-s3":
                return FilesTarget(bucket, server.obstore_options())
            return ParquetTarget(bucket, options) if name == "parquet-s3" else DeltaTarget(bucket, options)

        yield make


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("postgres", {VIEW}),
        ("redis", {VIEW}),
        ("redis-latest", {VIEW}),
        ("connector-sqlite", {VIEW}),
        ("kafka", {APPEND}),
        ("files-s3", {APPEND}),
        ("parquet-s3", {APPEND}),
        ("delta-s3", {APPEND, VIEW}),
    ],
)
def test_what_was_written_is_read(make: Make, tmp_path: Path, name: str, kinds: set[str]) -> None:
    target = make(name)
    assert target.name == name
    target.check()
    assert set(target.versions()) == ({f"{name.partition('-')[0]} server"} if name in VERSIONED else set())
    lanes = Lanes(tmp_path, {LANE: target})
    assert lanes.found(LANE) == dict.fromkeys(kinds, 0), "before there is anything"
    lanes.write_and_run(writes=2)
    assert lanes.found(LANE) == dict.fromkeys(kinds, 2 * BATCH)
    assert target.can_restore == (name == "postgres")
    if target.can_restore:
        target.save(LANE)
    lanes.write_and_run()
    assert lanes.found(LANE) == dict.fromkeys(kinds, 3 * BATCH)
    assert target.left_over(LANE) == []
    if target.can_restore:
        target.restore(LANE)
        assert lanes.found(LANE) == dict.fromkeys(kinds, 2 * BATCH)
        lanes.run()
        assert lanes.found(LANE) == dict.fromkeys(kinds, 3 * BATCH), "the checkpoint went back as well"
    target.remove(LANE)
    expected = 3 * BATCH if isinstance(target, ServedTarget) else 0
    assert lanes.found(LANE) == dict.fromkeys(kinds, expected)


def test_a_transaction_that_is_open_is_told_and_not_read(kafka_broker: KafkaBroker) -> None:
    target = KafkaTarget(kafka_broker.bootstrap, {})
    target.place(LANE)
    identity = f"headrace/{LANE}/x/0"
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "transactional.id": identity})
    producer.init_transactions()
    producer.begin_transaction()
    value = orjson.dumps({**document(1), "seen": "[1]"})
    producer.produce(f"headrace-certify-{LANE}", value, headers={"headrace.epoch": b"0"})
    producer.flush()
    assert target.left_over(LANE) == [f"transaction {identity}"]
    assert target.read(LANE)[APPEND].documents == []
    producer.commit_transaction()
    await_true(lambda: target.left_over(LANE) == [])  # a broker tells partitions after it has answered
    assert target.read(LANE)[APPEND].documents == [document(1)]
    target.remove(LANE)
    assert target.read(LANE)[APPEND].documents == []


def test_nothing_of_a_source_in_kafka_is_left(kafka_broker: KafkaBroker) -> None:
    topic, bootstrap = f"source-{uuid4().hex}", kafka_broker.bootstrap
    feed = KafkaFeed(ClientOptions(bootstrap), topic)
    feed.write()
    lane = f"lane-{uuid4().hex}"
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"headrace-{lane}"})
    consumer.commit(offsets=[TopicPartition(topic, 0, BATCH)], asynchronous=False)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    listed = admin.list_consumer_groups().result(30)
    assert f"headrace-{lane}" in {group.group_id for group in listed.valid}
    feed.remove([lane, "another"])
    assert topic not in admin.list_topics(timeout=30).topics
    listed = admin.list_consumer_groups().result(30)
    assert f"headrace-{lane}" not in {group.group_id for group in listed.valid}
    feed.remove([lane])


def test_redis_has_nothing_of_a_lane_that_was_removed(redis_url: str) -> None:
    target = RedisTarget({"url": redis_url})
    with Redis.from_url(redis_url) as client:
        client.set(f"headrace-certify:{LANE}:key", orjson.dumps(document(1)))
        client.set(f"headrace-certify:{LANE}-2:key", orjson.dumps(document(2)))
        client.hset("headrace:layouts", f"headrace-certify:{LANE}", "{}")
        client.hset(f"headrace:fences:{LANE}", "00000000-ffffffff", "somebody")
        assert target.read(LANE)[VIEW].documents == [document(1)]
        target.remove(LANE)
        assert client.keys("*") == [f"headrace-certify:{LANE}-2:key".encode()]


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
