"""Tells Kafka how far a materialization is, as the offsets of a consumer group, for monitors of lag.

Nothing is read back: where to go on is in the runtime checkpoint. So a failure here is logged and no more. It
is done with Kafka's own client, which Spark has loaded.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from headrace.pipeline.settings import KafkaSource, MaterializationSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TIMEOUT_MS = 10_000


class KafkaGroups:
    """Of the bindings of a materialization that read Kafka."""

    def __init__(self, spark: SparkSession, settings: MaterializationSettings) -> None:
        self._spark, self._name = spark, settings.name
        self._sources = [
            (line, binding.source, binding.source.group or f"headrace-{settings.name}")
            for line, binding in enumerate(settings.bindings)
            if isinstance(binding.source, KafkaSource)
        ]

    def follow(self, offsets: str) -> None:
        """`offsets` is the entry of Spark's offset log: two lines of header, then one for each source."""
        lines = offsets.splitlines()[2:]
        for line, source, group in self._sources:
            if lines[line] == "-":  # nothing was read of it yet
                continue
            try:
                self._commit(source, group, json.loads(lines[line]))
            except Exception as error:  # noqa: BLE001 - whatever it is, the data does not depend on it
                log.warning(
                    "materialization %r: consumer group %s does not follow: %s",
                    self._name,
                    group,
                    str(error).splitlines()[0],
                )

    def _commit(self, source: KafkaSource, group: str, positions: dict[str, dict[str, int]]) -> None:
        gateway: Any = self._spark.sparkContext._gateway
        java = gateway.jvm.java
        kafka = gateway.jvm.org.apache.kafka
        properties = java.util.Properties()
        for name, value in {**source.options, "bootstrap.servers": source.bootstrap}.items():
            properties.put(name, value)
        for name in ("request.timeout.ms", "default.api.timeout.ms"):
            properties.put(name, str(_TIMEOUT_MS))
        offsets = java.util.HashMap()
        for topic, partitions in positions.items():
            for partition, offset in partitions.items():
                at = kafka.common.TopicPartition(topic, int(partition))
                offsets.put(at, kafka.clients.consumer.OffsetAndMetadata(offset))
        admin = kafka.clients.admin.AdminClient.create(properties)
        try:
            admin.alterConsumerGroupOffsets(group, offsets).all().get(
                _TIMEOUT_MS, java.util.concurrent.TimeUnit.MILLISECONDS
            )
        finally:
            admin.close()
