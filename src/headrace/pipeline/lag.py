"""How far a materialization is behind its sources, found out without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.errors import ConfigError, HeadraceError
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.ingest.iceberg.tables import Tables
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.pipeline.settings import BindingSettings, CollectionSource, KafkaSource

_TIMEOUT = 5.0


@dataclass(frozen=True)
class Lag:
    """Of one binding; None where it cannot be known, and then `why` says so."""

    source: str
    rows: int | None = None
    seconds: float | None = None
    """Since the first row was written that has not arrived."""
    why: str = ""


def lag_of(
    index: int, binding: BindingSettings, checkpoint: RuntimeCheckpoint, catalog: CatalogSettings | None
) -> Lag:
    """`index` is the binding's place in the materialization."""
    name = str(getattr(binding.source, "collection", "") or getattr(binding.source, "topic", ""))
    try:
        match binding.source:
            case CollectionSource() if catalog is not None:
                rows, seconds = _of_collection(binding.source, _position(checkpoint, index), catalog)
                return Lag(name, rows, seconds)
            case KafkaSource():
                return Lag(name, _of_kafka(binding.source, _position(checkpoint, index)))
    except HeadraceError as error:
        return Lag(name, why=error.message)
    return Lag(name or "format", why="not known of this source")


def _position(checkpoint: RuntimeCheckpoint, index: int) -> Mapping[str, Any] | None:
    """Where the source of a binding stands; None: at its beginning."""
    text = (checkpoint.offsets or {}).get(checkpoint.epoch)
    if text is None:
        return None
    line = text.splitlines()[2 + index]
    return None if line == "-" else json.loads(line)


def _of_collection(
    source: CollectionSource, position: Mapping[str, Any] | None, catalog: CatalogSettings
) -> tuple[int, float]:
    table = Tables(catalog).load(source.collection)
    current = table.current_snapshot() if table is not None else None
    if table is None or current is None:
        return 0, 0.0
    rows, oldest = 0, None
    snapshot = current
    while True:
        added = int(snapshot.summary["added-records"] or 0) if snapshot.summary else 0
        if position is not None and snapshot.snapshot_id == position["snapshot_id"]:
            # `position` counts the snapshot's files that were read.
            files = int(snapshot.summary["added-data-files"] or 0) if snapshot.summary else 0
            left = max(0, files - int(position["position"]))
            if left and files:
                rows += added * left // files
                oldest = snapshot.timestamp_ms
            break
        if added:
            rows += added
            oldest = snapshot.timestamp_ms
        parent = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
        if parent is None:
            break
        snapshot = parent
    return rows, max(0.0, time.time() - oldest / 1000) if oldest else 0.0


def _of_kafka(source: KafkaSource, position: Mapping[str, Any] | None) -> int:
    try:
        from confluent_kafka import Consumer, KafkaException, TopicPartition
    except ImportError:
        raise ConfigError("for the lag of Kafka, pip install 'headrace[kafka]'") from None
    settings = {**source.options, "bootstrap.servers": source.bootstrap, "group.id": "headrace-status"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    try:
        partitions = consumer.list_topics(source.topic, timeout=_TIMEOUT).topics[source.topic].partitions
        behind = 0
        read = (position or {}).get(source.topic, {})
        for partition in partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(source.topic, partition), timeout=_TIMEOUT
            )
            behind += max(0, high - max(low, int(read.get(str(partition), low))))
        return behind
    except KafkaException as error:
        raise ConfigError(f"Kafka at {source.bootstrap} does not answer: {error}") from None
    finally:
        consumer.close()
