"""Where a topic begins and ends, and which topic it is: a source that begins at its end has to begin at the
same place when it starts again, and offsets mean something else in another topic of the same name.

It is done with Kafka's own client, which Spark has loaded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from headrace.errors import Transient
from headrace.pipeline.settings import KafkaSource
from headrace.pipeline.sources.kafka_starts import EARLIEST, LATEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TIMEOUT_MS = 30_000
_CLOSE_MS = 5_000
_WITH_ID = " with id "
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"  # of a broker that has none
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def isolation_level(source: KafkaSource) -> str:
    """Returns the isolation level to read with: by default, what a transaction aborted was never written."""
    return source.options.get("isolation.level", "read_committed")


def topic_incarnation(spark: SparkSession, source: KafkaSource) -> str:
    """Which one of the topics of this name it is, wherever its brokers are reached."""
    gateway: Any = spark.sparkContext._gateway
    java, kafka = gateway.jvm.java, gateway.jvm.org.apache.kafka
    admin = kafka.clients.admin.Admin.create(_properties(gateway, source))
    try:
        cluster = admin.describeCluster().clusterId().get()
        topics = java.util.Collections.singletonList(source.topic)
        found = str(admin.describeTopics(topics).allTopicNames().get().get(source.topic).topicId())
    except Py4JJavaError as error:
        cause = error.java_exception.getCause()
        if cause is not None and cause.getClass().getSimpleName() == "UnknownTopicOrPartitionException":
            raise _no_topic(source) from None
        raise
    finally:
        admin.close(java.time.Duration.ofMillis(_CLOSE_MS))
    return f"topic {source.topic} of cluster {cluster}" + ("" if found == _NO_ID else f"{_WITH_ID}{found}")


def has_topic_ids(incarnation: str) -> bool:
    """Returns whether brokers can tell each of the topics, separated by commas, from another of its name."""
    return all(_WITH_ID in topic for topic in incarnation.split(", "))


def end_offsets(spark: SparkSession, source: KafkaSource) -> dict[str, int]:
    """The offset after the last message of each partition."""
    return _offsets(spark, source, "endOffsets")


def first_offsets(
    spark: SparkSession, source: KafkaSource, starting: str, kept: Mapping[str, int] | None
) -> dict[str, int]:
    """Returns the offset that each partition begins at, where some begin at their ends.

    `kept` is what this returned at the very first start; partitions that are not in it were created since.
    """
    ends = end_offsets(spark, source)
    if kept is not None:
        return {**dict.fromkeys(ends, EARLIEST), **kept}  # as Spark does with partitions that it finds later
    if starting == "latest":
        return ends
    given = json.loads(starting).get(source.topic, {})
    return {at: ends.get(at, offset) if offset == LATEST else offset for at, offset in given.items()}


def lost_offsets(spark: SparkSession, source: KafkaSource, wanted: Mapping[str, int]) -> str:
    """Which messages are not there any more of those from certain offsets on; empty if all are."""
    firsts = _offsets(spark, source, "beginningOffsets")
    starts = {partition: wanted.get(partition, 0) for partition in sorted(firsts, key=int)}
    lost = [
        f"{max(start, 0)} to {firsts[partition] - 1} of partition {partition}"
        for partition, start in starts.items()
        if start != LATEST and max(start, 0) < firsts[partition]
    ]
    return f"topic {source.topic} has no messages any more at {', '.join(lost)}" if lost else ""


def _offsets(spark: SparkSession, source: KafkaSource, which: str) -> dict[str, int]:
    gateway: Any = spark.sparkContext._gateway
    java, kafka = gateway.jvm.java, gateway.jvm.org.apache.kafka
    consumer = kafka.clients.consumer.KafkaConsumer(_properties(gateway, source))
    try:
        partitions = java.util.ArrayList()
        for one in consumer.partitionsFor(source.topic) or ():
            partitions.add(kafka.common.TopicPartition(one.topic(), one.partition()))
        if not partitions:
            raise _no_topic(source)
        found = getattr(consumer, which)(partitions)
        return {str(at.partition()): int(found.get(at)) for at in partitions}
    finally:
        consumer.close()


def _properties(gateway: Any, source: KafkaSource) -> Any:
    properties = gateway.jvm.java.util.Properties()
    ours = {
        "bootstrap.servers": source.bootstrap,
        "isolation.level": isolation_level(source),
        "key.deserializer": _BYTES,
        "value.deserializer": _BYTES,
        "default.api.timeout.ms": str(_TIMEOUT_MS),
    }
    for name, value in {**source.options, **ours}.items():
        properties.put(name, value)
    return properties


def _no_topic(source: KafkaSource) -> Transient:
    return Transient(f"Kafka at {source.bootstrap} has no topic {source.topic!r}: make it first")
