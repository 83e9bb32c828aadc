"""Kafka: a topic for each lane, read as a consumer of what is committed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import orjson

from headrace.certify.kafka_cleaning import delete_topics
from headrace.certify.targets.documents_of import in_order
from headrace.certify.targets.sinks import SinkTarget
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.target import APPEND, Place, Rows
from headrace.errors import EndpointUnavailable
from headrace.kafka.admin import ANSWER_SECONDS, end_offsets, make_topic
from headrace.kafka.config import ClientOptions

if TYPE_CHECKING:
    from confluent_kafka import Message


class KafkaTarget(SinkTarget):
    """A topic has one partition, since Kafka tells each one of a commit for itself."""

    name = format = "kafka"
    modes: tuple[str, ...] = (APPEND,)

    def __init__(self, bootstrap: str, options: Mapping[str, str]) -> None:
        """`options` are of the sink, such as those by which it signs in."""
        self._options = {**options, "bootstrap": bootstrap}
        self._client = ClientOptions.of(self._options)

    def place(self, lane: str) -> Place:
        make_topic(self._client, _topic(lane), {}, partitions=1)
        return super().place(lane)

    def location(self, lane: str, mode: str) -> str:  # noqa: ARG002 - there is only one
        return _topic(lane)

    def options(self, lane: str) -> Mapping[str, str]:
        return {**self._options, "checkpoints": _checkpoints(lane)}

    def read(self, lane: str) -> Mapping[str, Rows]:
        found = steadily(lambda: _read_committed(self._client, _topic(lane)))
        return {APPEND: in_order(map(_row, found))}

    def left_over(self, lane: str) -> list[str]:
        """Transactions that are open."""
        from headrace.sinks.kafka_stuck import open_transactions

        return [
            f"transaction {one.identity.transactional_id}"
            for one in open_transactions(self._client, _checkpoints(lane))
            if one.materialization == lane
        ]

    def check(self) -> None:
        end_offsets(self._client, _topic("check"))

    def remove(self, lane: str) -> None:
        delete_topics(self._client, [_topic(lane), _checkpoints(lane)])


def _topic(lane: str) -> str:
    return f"headrace-certify-{lane}"


def _checkpoints(lane: str) -> str:
    """Its own, so that nothing of it stays in one that others use."""
    return f"{_topic(lane)}-checkpoints"


def _row(message: Message) -> dict[str, Any]:
    value: dict[str, Any] = orjson.loads(message.value() or b"{}")
    return value


def _read_committed(client: ClientOptions, topic: str) -> list[Message]:
    """All that a plain consumer gets up to the first transaction that is open."""
    from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

    consumer = Consumer(
        {
            **client.client_config(),
            "group.id": f"headrace-certify-{uuid4().hex}",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # at a partition's end brokers wait so long; else 500
        }
    )
    try:
        known = consumer.list_topics(timeout=ANSWER_SECONDS).topics.get(topic)
        partitions = list(known.partitions) if known else []
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(ANSWER_SECONDS)
            if message is None:
                raise EndpointUnavailable(f"topic {topic!r} of {client.bootstrap} does not answer")
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
        return found
    finally:
        consumer.close()
