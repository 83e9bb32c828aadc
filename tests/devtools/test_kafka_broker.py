"""The Kafka that other tests rely on is a real one."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from devtools.kafka_broker import KafkaBroker
from tests.waiting import DEADLINE_SECONDS


def produce(broker: KafkaBroker, topic: str, partition: int, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "log_level": 0})
    producer.produce(topic, value=value, partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


def consume(broker: KafkaBroker, topic: str, partition: int, count: int) -> list[bytes | None]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": uuid4().hex, "log_level": 0}
    consumer = Consumer(settings)
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        messages = consumer.consume(count, timeout=DEADLINE_SECONDS)
        assert not [message.error() for message in messages if message.error()]
        return [message.value() for message in messages]
    finally:
        consumer.close()


def test_it_produces_and_consumes(kafka_broker: KafkaBroker) -> None:
    topic = f"produce-and-consume-{uuid4().hex}"
    kafka_broker.create_topic(topic, partitions=2)
    for number in range(3):
        produce(kafka_broker, topic, 1, str(number).encode())
    assert consume(kafka_broker, topic, 1, 3) == [b"0", b"1", b"2"]


def test_a_topic_has_its_configuration(kafka_broker: KafkaBroker) -> None:
    topic = f"small-{uuid4().hex}"
    kafka_broker.create_topic(topic, config={"max.message.bytes": "100"})
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    errors: list[KafkaError | None] = []
    producer.produce(topic, value=b"." * 200, on_delivery=lambda error, _: errors.append(error))
    producer.flush(DEADLINE_SECONDS)
    assert [error.name() for error in errors if error] == ["MSG_SIZE_TOO_LARGE"]


def test_a_topic_cannot_be_created_twice(kafka_broker: KafkaBroker) -> None:
    topic = f"once-{uuid4().hex}"
    kafka_broker.create_topic(topic)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        kafka_broker.create_topic(topic)


@pytest.mark.full
def test_it_keeps_its_port_and_data_while_it_is_down() -> None:
    with KafkaBroker() as broker:
        broker.create_topic("kept")
        produce(broker, "kept", 0, b"before")
        broker.stop()
        broker.start()
        produce(broker, "kept", 0, b"after")
        assert consume(broker, "kept", 0, 2) == [b"before", b"after"]
