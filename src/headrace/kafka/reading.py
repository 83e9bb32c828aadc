"""Reads topics from one place to another, by a consumer that belongs to no group."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.errors import EndpointUnavailable
from headrace.kafka.admin import ANSWER_SECONDS, kafka_error
from headrace.kafka.config import ClientOptions

if TYPE_CHECKING:
    from confluent_kafka import Message

_AT_ONCE = 5000
_LINGER_SECONDS = 0.02
"""The client waits as long for a batch to be full, even if there is nothing more to come."""
_GROUP = "headrace-reader"  # the client wants one, and never tells it to anybody


def read_topic(
    client: ClientOptions,
    topic: str,
    *,
    committed: bool,
    reached: dict[int, int],
    last: Mapping[int, int] | None = None,
) -> Iterator[Message]:
    """Messages of each partition in `reached`, from the offset there on; at the end that is how far it came.

    With `committed`, the end is where the first transaction begins that is still open. `last` is the offset
    in each partition after which no message is wanted.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            **client.client_config(),
            "group.id": _GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,  # at a partition's end brokers wait so long; else 500
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    left = set(reached)
    until = time.monotonic() + ANSWER_SECONDS
    try:
        consumer.assign([TopicPartition(topic, partition, start) for partition, start in reached.items()])
        while left:
            messages = consumer.consume(_AT_ONCE, _LINGER_SECONDS)
            until = time.monotonic() + ANSWER_SECONDS if messages else until
            if time.monotonic() > until:
                raise EndpointUnavailable(f"topic {topic!r} of {client.bootstrap} does not answer")
            for message in messages:
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    if error.retriable():
                        continue
                    raise kafka_error(f"topic {topic!r} of {client.bootstrap} cannot be read", error)
                if partition not in left or offset is None:
                    continue
                if error is not None:
                    reached[partition] = offset
                    left.discard(partition)
                    continue
                if last is not None and offset >= last[partition]:
                    left.discard(partition)
                if last is None or offset <= last[partition]:
                    reached[partition] = offset + 1
                    yield message
    finally:
        consumer.close()
