"""Counts the messages of a topic by epoch, where brokers may have removed some of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

from headrace.kafka.admin import ANSWER_SECONDS, kafka_failures
from headrace.kafka.config import ClientOptions
from headrace.sinks.audits import never_decided
from headrace.sinks.contract import Place
from headrace.sinks.kafka_rows import own_messages

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition


def audit_topic(
    client: ClientOptions, place: Place, decided: Mapping[int, int], last: Callable[[], int] | None
) -> Iterator[str]:
    """As `RowSink.audit` says. Where messages may be gone, there may be fewer of an epoch, and never more."""
    found: Counter[int] = Counter()
    first: dict[int, int] = {}  # the first epoch that a partition still has
    for epoch, message in own_messages(client, place):
        found[epoch] += 1
        first.setdefault(message.partition() or 0, epoch)
    # By now, so that what was removed while we read is known as well.
    shortened = _shortened(client, place.location)
    whole_after = max((first.get(partition, max(decided, default=-1)) for partition in shortened), default=-1)
    is_compacted = _is_compacted(client, place.location)
    for epoch, rows in sorted(decided.items()):
        may_be_fewer = is_compacted or epoch <= whole_after
        if found[epoch] > rows or (found[epoch] < rows and not may_be_fewer):
            yield f"epoch {epoch} was committed with {rows} rows, and {found[epoch]} are there"
    yield from never_decided(found, decided, last)


def _shortened(client: ClientOptions, topic: str) -> list[int]:
    """The partitions that do not begin where they once began: by retention, or by hand."""
    from confluent_kafka import Consumer, TopicPartition

    with kafka_failures(f"topic {topic!r} of {client.bootstrap} cannot be read"):
        consumer = Consumer({**client.client_config(), "group.id": "headrace-reader"})
        try:
            known = consumer.list_topics(timeout=ANSWER_SECONDS).topics.get(topic)
            partitions = known.partitions if known else ()
            return [number for number in partitions if _low(consumer, TopicPartition(topic, number)) > 0]
        finally:
            consumer.close()


def _low(consumer: Consumer, partition: TopicPartition) -> int:
    found = consumer.get_watermark_offsets(partition, ANSWER_SECONDS, cached=False)
    return found[0] if found else 0


def _is_compacted(client: ClientOptions, topic: str) -> bool:
    """No if we may not know."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._config import ConfigResource
    from confluent_kafka.admin._resource import ResourceType

    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(client.client_config())  # by name, or it would be gone before the answer comes
    try:
        config = admin.describe_configs([resource], request_timeout=ANSWER_SECONDS)[resource]
        return "compact" in (config.result(ANSWER_SECONDS)["cleanup.policy"].value or "")
    except (KafkaException, KeyError, TimeoutError):
        return False
