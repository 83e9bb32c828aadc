"""Sends dead letters again to the Kafka topic that they came from."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError, UnexpectedFailure
from headrace.kafka.config import client_options
from headrace.pipeline.dead_letters.replay import Batch
from headrace.pipeline.settings import KafkaSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_ANSWER_SECONDS = 60.0
_READ_OVER = 1000
"""Messages between two that are wanted; where there are more, they are not read."""


@dataclass(frozen=True, order=True)
class _At:
    partition: int
    offset: int


@dataclass(frozen=True)
class _Original:
    """The key and headers that a message had beside its value."""

    key: bytes | None = None
    headers: Any = None


def send_to_kafka(source: KafkaSource, batch: Batch) -> None:
    """Sends rows to the partitions that they came from, each with the key and headers that it had.

    A dead letter does not have those, so they are read from the topic. A message that is not there any more
    is sent without them.
    """
    try:
        from confluent_kafka import Consumer, KafkaException, Producer
    except ImportError:
        raise ConfigError(
            f"rows are sent to the topic {source.topic!r} by the package confluent-kafka, which is not "
            "installed: pip install confluent-kafka"
        ) from None
    places = [_place(letter.source) for letter in batch.letters]
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(str(error))

    options = client_options(source.bootstrap, source.options)
    try:
        consumer = Consumer({**options, **_LOOKING})
        try:
            originals = _read(consumer, source.topic, {place for place in places if place is not None})
        finally:
            consumer.close()
        producer = Producer({**options, "enable.idempotence": True})
        for letter, place in zip(batch.letters, places, strict=True):
            original = originals.get(place, _Original()) if place else _Original()
            producer.produce(
                source.topic,
                letter.row.encode(),
                key=original.key,
                headers=original.headers,
                partition=place.partition if place else -1,
                on_delivery=delivered,
            )
            producer.poll(0)
        left = producer.flush(_ANSWER_SECONDS)
    except (KafkaException, BufferError) as error:
        raise UnexpectedFailure(f"topic {source.topic!r} does not take dead letters: {error}") from error
    if failures or left:
        said = failures[0] if failures else f"{left} rows were not taken in {_ANSWER_SECONDS:.0f} s"
        raise UnexpectedFailure(f"topic {source.topic!r} does not take dead letters: {said}")


_LOOKING = {
    "group.id": "headrace-replay",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "fetch.wait.max.ms": 10,  # at a partition's end brokers wait so long; else 500
    "log_level": 0,
}


def _place(source: str) -> _At | None:
    raw = json.loads(source)
    return _At(raw["partition"], raw["offset"]) if {"partition", "offset"} <= raw.keys() else None


def _read(consumer: Consumer, topic: str, places: Iterable[_At]) -> dict[_At, _Original]:
    """Reads what the messages had beside their values, as far as they are still there."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    gone = (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET)
    found: dict[_At, _Original] = {}
    until = time.monotonic() + _ANSWER_SECONDS
    for partition, wanted in groupby(sorted(places), key=lambda place: place.partition):
        reached = -1
        for place in wanted:
            if reached < 0 or place.offset > reached + _READ_OVER:
                consumer.assign([TopicPartition(topic, partition, place.offset)])
                reached = place.offset - 1
            while reached < place.offset:
                message = consumer.poll(1.0)
                error = message.error() if message else None
                if time.monotonic() > until:
                    raise UnexpectedFailure(f"topic {topic!r} does not tell the keys of dead letters in time")
                if error is not None and error.code() in gone:
                    reached = -1  # where the next one is has to be said anew
                    break
                if error is not None and not error.retriable():
                    raise KafkaException(error)
                if message is None or error is not None:
                    continue
                reached = message.offset() or 0
                found[_At(partition, reached)] = _Original(message.key(), message.headers())
    return found
