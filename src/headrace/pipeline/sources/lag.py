"""How far a materialization is behind its sources, found out without Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyiceberg.table.snapshots import Operation, Snapshot

from headrace.errors import ConfigError, HeadraceError
from headrace.ingest.iceberg.settings import CatalogSettings, missing_file
from headrace.ingest.iceberg.tables import Tables
from headrace.kafka.config import client_options
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.pipeline.settings import BindingSettings, CollectionSource, KafkaSource

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_TIMEOUT = 5.0
_LATEST, _EARLIEST = -1, -2  # as Spark and Kafka write them
# Nobody's group moves by this, and no more is fetched than the first message of each partition.
_LOOKING = {
    "group.id": "headrace-status",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "queued.min.messages": 1,
    "fetch.message.max.bytes": 1 << 16,
    "log_level": 0,
}


@dataclass(frozen=True)
class Lag:
    """How far one binding is behind; None where it cannot be known, and then `why` says so."""

    source: str
    rows: int | None = None
    seconds: float | None = None
    """Since the first row was written that has not arrived."""
    why: str = ""


def lag_of(
    index: int,
    binding: BindingSettings,
    checkpoint: RuntimeCheckpoint,
    catalog: CatalogSettings | None,
    arrived: int | None = None,
) -> Lag:
    """`index` is the binding's place in the materialization. `arrived` is the last epoch that is committed,
    if that is not the checkpoint's but the one before."""
    epoch = checkpoint.epoch if arrived is None else arrived
    name = str(getattr(binding.source, "collection", "") or getattr(binding.source, "topic", ""))
    try:
        match binding.source:
            case CollectionSource() if catalog is not None:
                position = checkpoint.position(index, epoch)
                return Lag(name, *_of_collection(binding.source, position, catalog))
            case KafkaSource():
                return Lag(name, *_of_kafka(binding.source, checkpoint.position(index, epoch)))
    except HeadraceError as error:
        return Lag(name, why=error.message)
    return Lag(name or "format", why="not known of this source")


def _of_collection(
    source: CollectionSource, position: Mapping[str, Any] | None, catalog: CatalogSettings
) -> tuple[int, float]:
    if problem := missing_file(catalog):
        raise ConfigError(problem)
    table = Tables(catalog).load(source.collection)
    if table is None:
        raise ConfigError("the collection has no table yet: nothing was committed to it")
    rows, oldest = 0, None
    snapshot = table.current_snapshot()
    while snapshot is not None:
        is_last = position is not None and snapshot.snapshot_id == position["snapshot_id"]
        unread = _unread_rows(snapshot, int(position["position"]) if is_last and position else 0)
        if unread:
            rows += unread
            oldest = snapshot.timestamp_ms
        if is_last:
            break
        snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id) if snapshot.parent_snapshot_id else None
    else:
        if position is not None:
            raise ConfigError(
                f"snapshot {position['snapshot_id']}, at which it stands, is not in the table's history any "
                "more: it has expired, or the table was rolled back"
            )
    return rows, _age(oldest)


def _unread_rows(snapshot: Snapshot, read_files: int) -> int:
    """Rows are written by appends alone: what replaces or overwrites files writes rows that were there."""
    summary = snapshot.summary
    if summary is None or summary.operation is not Operation.APPEND:
        return 0
    added = int(summary["added-records"] or 0)
    files = int(summary["added-data-files"] or 0)
    return added * max(0, files - read_files) // files if read_files and files else added


def _age(milliseconds: int | None) -> float:
    return 0.0 if milliseconds is None else max(0.0, time.time() - milliseconds / 1000)


def check_topic(source: KafkaSource) -> None:
    """Refuses a topic that is not there, or whose brokers do not answer. Its messages are left alone."""
    with _looking_at(source) as consumer:
        _partitions(consumer, source)


def _of_kafka(source: KafkaSource, position: Mapping[str, Any] | None) -> tuple[int, float | None]:
    with _looking_at(source) as consumer:
        unread = _unread(consumer, source, position)
        rows = sum(end - begin for begin, end in unread.values())
        first = _first_time(consumer, source.topic, {at: begin for at, (begin, _) in unread.items()})
    if rows and first is None:
        return rows, None
    return rows, _age(first)


@contextmanager
def _looking_at(source: KafkaSource) -> Iterator[Consumer]:
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError:
        raise ConfigError("to ask Kafka without Spark, pip install 'headrace[kafka]'") from None
    options = {**client_options(source.bootstrap, source.options), **_LOOKING}
    try:
        consumer = Consumer(options)
    except KafkaException as error:
        raise ConfigError(f"Kafka's options are not for this client: {error.args[0].str()}") from None
    try:
        yield consumer
    except KafkaException as error:
        raise ConfigError(f"Kafka at {source.bootstrap} does not tell: {error.args[0].str()}") from None
    finally:
        consumer.close()


def _partitions(consumer: Consumer, source: KafkaSource) -> list[int]:
    from confluent_kafka import KafkaException

    topic = consumer.list_topics(source.topic, timeout=_TIMEOUT).topics[source.topic]
    if topic.error is not None:
        raise KafkaException(topic.error)
    return list(topic.partitions)


def _unread(
    consumer: Consumer, source: KafkaSource, position: Mapping[str, Any] | None
) -> dict[int, tuple[int, int]]:
    """The first offset that was not read, and the end, of each partition that has such."""
    from confluent_kafka import TopicPartition

    begins, otherwise = _begins(source, position)
    unread = {}
    for partition in _partitions(consumer, source):
        low, high = consumer.get_watermark_offsets(TopicPartition(source.topic, partition), timeout=_TIMEOUT)
        begin = int(begins.get(str(partition), otherwise))
        begin = high if begin == _LATEST else max(low, begin)
        if begin < high:
            unread[partition] = begin, high
    return unread


def _begins(source: KafkaSource, position: Mapping[str, Any] | None) -> tuple[Mapping[str, int], int]:
    """Offsets by partition, and that of a partition that is not among them."""
    if position is not None:
        return position.get(source.topic, {}), _EARLIEST  # a new partition is read from its beginning
    if source.starting_offsets in ("earliest", "latest"):
        return {}, _LATEST if source.starting_offsets == "latest" else _EARLIEST
    return json.loads(source.starting_offsets).get(source.topic, {}), _EARLIEST


def _first_time(consumer: Consumer, topic: str, begins: Mapping[int, int]) -> int | None:
    """When the first message was written that was not read; None if that is not heard in time."""
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, TopicPartition

    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in begins.items()])
    first, waited_for, until = None, set(begins), time.monotonic() + _TIMEOUT
    while waited_for and (left := until - time.monotonic()) > 0:
        message = consumer.poll(left)
        partition = None if message is None or message.error() is not None else message.partition()
        if message is None or partition not in waited_for:
            continue
        waited_for.remove(partition)
        consumer.pause([TopicPartition(topic, partition)])
        kind, written = message.timestamp()
        if kind == TIMESTAMP_NOT_AVAILABLE:
            return None
        first = written if first is None else min(first, written)
    return None if waited_for else first
