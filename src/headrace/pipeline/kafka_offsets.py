"""Where a topic ends: a source that begins at its end has to begin at the same place when it starts again.

It is done with Kafka's own client, which Spark has loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.errors import Transient
from headrace.pipeline.settings import KafkaSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIEST = -2  # as Spark writes it
_TIMEOUT_MS = 30_000
_BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


def isolation_level(source: KafkaSource) -> str:
    """What a transaction aborted was never written."""
    return source.options.get("isolation.level", "read_committed")


def end_offsets(spark: SparkSession, source: KafkaSource) -> dict[str, int]:
    """The offset after the last message of each partition."""
    gateway: Any = spark.sparkContext._gateway
    java, kafka = gateway.jvm.java, gateway.jvm.org.apache.kafka
    properties = java.util.Properties()
    ours = {
        "bootstrap.servers": source.bootstrap,
        "isolation.level": isolation_level(source),
        "key.deserializer": _BYTES,
        "value.deserializer": _BYTES,
        "default.api.timeout.ms": str(_TIMEOUT_MS),
    }
    for name, value in {**source.options, **ours}.items():
        properties.put(name, value)
    consumer = kafka.clients.consumer.KafkaConsumer(properties)
    try:
        partitions = java.util.ArrayList()
        for found in consumer.partitionsFor(source.topic) or ():
            partitions.add(kafka.common.TopicPartition(found.topic(), found.partition()))
        if not partitions:
            raise Transient(f"Kafka at {source.bootstrap} has no topic {source.topic!r}: make it first")
        ends = consumer.endOffsets(partitions)
        return {str(at.partition()): int(ends.get(at)) for at in partitions}
    finally:
        consumer.close()
