"""Tells Kafka how far a materialization is, as the offsets of a consumer group, for monitors of lag.

Nothing is read back: where to go on is in the runtime checkpoint. So no epoch waits for this, and a failure
is logged and no more. It is done with Kafka's own client, which Spark has loaded.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace.model.checkpoints import JsonObject
from headrace.pipeline.settings import KafkaSource, MaterializationSettings
from headrace.spark.checkpoint import OffsetEntry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_TIMEOUT_MS = 10_000
_LAST_SECONDS = 15.0
"""How long the end of a materialization waits for its last offsets to be told."""


class KafkaGroups:
    """Tells Kafka's brokers how far the bindings of a materialization have read; use it as a context manager.

    A thread of its own tells the newest offsets, and leaves out those that were overtaken meanwhile.
    """

    def __init__(self, spark: SparkSession, settings: MaterializationSettings) -> None:
        self._spark, self._name = spark, settings.name
        self._groups = [
            (line, _Group(spark, binding.source, binding.source.group or f"headrace-{settings.name}"))
            for line, binding in enumerate(settings.bindings)
            if isinstance(binding.source, KafkaSource)
        ]
        self._changed = threading.Condition()
        self._newest: str | None = None
        self._is_closing = False
        self._thread = threading.Thread(
            target=self._work, name=f"headrace-groups-{settings.name}", daemon=True
        )

    def __enter__(self) -> KafkaGroups:
        if self._groups:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._groups:
            self._thread.join(_LAST_SECONDS)

    def follow(self, offsets: str) -> None:
        """Has the groups follow to an epoch's end; `offsets` is its entry of Spark's offset log."""
        with self._changed:
            self._newest = offsets
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._newest is not None or self._is_closing)
                offsets, self._newest = self._newest, None
            if offsets is None:
                break
            self._commit(OffsetEntry(offsets))
        for _, group in self._groups:
            group.close()

    def _commit(self, entry: OffsetEntry) -> None:
        for index, group in self._groups:
            try:
                if (positions := entry.position(index)) is not None:
                    group.commit(positions)
            except Exception as error:  # noqa: BLE001 - whatever it is, the data does not depend on it
                said = str(error).strip().splitlines() or [type(error).__name__]
                log.warning(
                    "materialization %r: consumer group %s does not follow: %s",
                    self._name,
                    group.name,
                    said[0],
                )


class _Group:
    """Keeps a client for one consumer group: to connect takes longer than to commit."""

    def __init__(self, spark: SparkSession, source: KafkaSource, name: str) -> None:
        self.name = name
        self._spark, self._source = spark, source
        self._admin: Any = None

    def commit(self, positions: JsonObject) -> None:
        gateway: Any = self._spark.sparkContext._gateway
        java = gateway.jvm.java
        kafka = gateway.jvm.org.apache.kafka
        offsets = java.util.HashMap()
        for topic, partitions in positions.items():
            for partition, offset in partitions.items():
                at = kafka.common.TopicPartition(topic, int(partition))
                offsets.put(at, kafka.clients.consumer.OffsetAndMetadata(offset))
        if self._admin is None:
            self._admin = kafka.clients.admin.AdminClient.create(self._properties(java))
        self._admin.alterConsumerGroupOffsets(self.name, offsets).all().get(
            _TIMEOUT_MS, java.util.concurrent.TimeUnit.MILLISECONDS
        )

    def close(self) -> None:
        if self._admin is not None:
            gateway: Any = self._spark.sparkContext._gateway
            with suppress(Exception):
                self._admin.close(gateway.jvm.java.time.Duration.ofMillis(_TIMEOUT_MS))

    def _properties(self, java: Any) -> Any:
        properties = java.util.Properties()
        for name, value in {**self._source.options, "bootstrap.servers": self._source.bootstrap}.items():
            properties.put(name, value)
        for name in ("request.timeout.ms", "default.api.timeout.ms"):
            properties.put(name, str(_TIMEOUT_MS))
        return properties
