"""Opens what a materialization reads: one stream of all its bindings, each row under its binding's number."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial, reduce
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    IntegralType,
    LongType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.errors import ConfigError, Transient
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.checkpoints import JsonObject
from headrace.model.collections import Collection, pointer_tokens
from headrace.model.reduction_schema import Location, Strategy
from headrace.pipeline.settings import (
    FILE_FORMATS,
    BindingSettings,
    CollectionSource,
    FormatSource,
    KafkaSource,
    Limits,
    MaterializationSettings,
)
from headrace.pipeline.sources.frames import ORDER, MakeFrame, frame_of_columns
from headrace.pipeline.sources.json_values import frame_of_json
from headrace.pipeline.sources.kafka_offsets import (
    first_offsets,
    isolation_level,
    lost_offsets,
    topic_incarnation,
)
from headrace.pipeline.sources.kafka_starts import (
    begins_at_end,
    fails_on_loss,
    keeps_start,
    starting_offsets,
    topics_of,
)
from headrace.spark.sql import quote

log = logging.getLogger(__name__)

BINDING = "binding"
STARTS = "starts"
"""The key of the recovery log's plan."""
_NUMBER = "_number"
_SIMPLE = (IntegralType, TimestampType, TimestampNTZType)
_WHAT_IS_READ = ("path", "table", "subscribepattern", "assign", "dbtable", "location")
_ANY_ORDER = (Strategy.SUM, Strategy.MINIMIZE, Strategy.MAXIMIZE)


@dataclass(frozen=True)
class Lost:
    """Rows that a source does not have any more."""

    what: str
    can_be_skipped: bool = True
    """Whether the source can be read on without them."""


@dataclass(frozen=True)
class OpenedSource:
    """The source of one binding."""

    stream: DataFrame
    frame: MakeFrame
    """Makes a frame of documents from rows of the stream."""
    description: str
    """Describes what it reads; another text means another source."""
    incarnation: Callable[[], str] = lambda: ""
    """Tells which one of those of that name it is: a topic or table that is deleted and created again is
    another one. Empty if that cannot be told. It may have to ask, so what needs no asking comes first."""
    check: Callable[[], None] = lambda: None
    """Called before each epoch; raises `Transient` if the source has to be opened again to be read."""
    lost: Callable[[JsonObject | None, bool], Lost | None] | None = None
    """Tells what cannot be read any more of all that follows a position; None if nobody knows. A position of
    None is the beginning; the second argument says whether what follows it was read before."""
    lists_files: bool = False
    """Whether it keeps in Spark's checkpoint folder which files it has read, which nobody else knows."""
    start: Mapping[str, int] = field(default_factory=dict)
    """Where a topic begins that is read from its end: by partition, as found at the very first start."""
    is_cut: Callable[[JsonObject], bool] = lambda _: False
    """Tells whether a position is inside of what one epoch has to read as a whole."""

    @property
    def simple_order(self) -> tuple[str, ...] | None:
        """Names the columns of the order, if they are whole numbers and instants, each of its own name."""
        order = self.frame(self.stream).select(f"{ORDER}.*").schema
        is_simple = all(isinstance(column.dataType, _SIMPLE) for column in order.fields)
        has_names = len({name.casefold() for name in order.names}) == len(order.names)
        return tuple(order.names) if is_simple and has_names else None


def combined_stream(opened_sources: list[OpenedSource]) -> DataFrame:
    """Makes one row for each of any source: `binding`, and the row as a struct in `b0`, `b1`, ...

    Of one source, its rows as they are.
    """
    if len(opened_sources) == 1:
        return opened_sources[0].stream
    streams = [
        source.stream.select(F.lit(index).alias(BINDING), F.struct("*").alias(f"b{index}"))
        for index, source in enumerate(opened_sources)
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), streams)


def rows_of(epoch: DataFrame, index: int, is_alone: bool) -> DataFrame:
    """Selects what one binding read in an epoch of the combined stream."""
    return epoch if is_alone else epoch.where(F.col(BINDING) == index).select(f"b{index}.*")


def open_sources(
    spark: SparkSession,
    settings: MaterializationSettings,
    catalog: CatalogSettings | None,
    starts: Mapping[str, Mapping[str, int]] | None = None,
    accepts_loss: bool = False,
) -> list[OpenedSource]:
    """`starts`: the `start` that each source had at the first start of all, by its place.

    `accepts_loss`: rows that are gone are skipped, where a source can.
    """
    return [
        _open(spark, binding, settings.limits, catalog, (starts or {}).get(str(index)), accepts_loss)
        for index, binding in enumerate(settings.bindings)
    ]


def _open(
    spark: SparkSession,
    binding: BindingSettings,
    limits: Limits,
    catalog: CatalogSettings | None,
    start: Mapping[str, int] | None,
    accepts_loss: bool,
) -> OpenedSource:
    match binding.source:
        case CollectionSource():
            return _collection(spark, binding.source, binding.collection, limits, catalog)
        case KafkaSource():
            return _kafka(spark, binding.source, binding.collection, limits, start, accepts_loss)
        case FormatSource():
            return _format(spark, binding.source, binding.collection, start, accepts_loss)


def starts_of(opened_sources: list[OpenedSource]) -> JsonObject:
    """Returns what the recovery log's plan keeps of the first start, for `open_sources` of later ones."""
    starts = {str(index): dict(source.start) for index, source in enumerate(opened_sources) if source.start}
    return {STARTS: starts} if starts else {}


def check_starts(opened_sources: list[OpenedSource], plan: JsonObject) -> None:
    """Refuses sources that were opened just before another process has started for the first time."""
    for index, kept in plan.get(STARTS, {}).items():
        if kept != {partition: opened_sources[int(index)].start.get(partition) for partition in kept}:
            raise Transient("another process has started this materialization, and from other offsets")


def table_of(source: CollectionSource, catalog: CatalogSettings) -> str:
    """The name of a collection's table in Spark."""
    return ".".join(quote(part) for part in (catalog.name, *catalog.identifier(source.collection)))


def _collection(
    spark: SparkSession,
    source: CollectionSource,
    collection: Collection,
    limits: Limits,
    catalog: CatalogSettings | None,
) -> OpenedSource:
    if catalog is None:
        raise ConfigError(f"collection {source.collection!r} is read from its table, and there is no catalog")
    options = {
        # What is deleted from a table, or written anew in it, was written before.
        "streaming-skip-delete-snapshots": "true",
        "streaming-skip-overwrite-snapshots": "true",
    }
    table = table_of(source, catalog)
    spark.catalog.refreshTable(table)  # a session keeps a table as it was when it saw it first
    opened = _Table(spark, table, source.collection)
    if not opened.is_partitioned:
        if limits.files:
            options["streaming-max-files-per-micro-batch"] = str(limits.files)
        if limits.rows:
            options["streaming-max-rows-per-micro-batch"] = str(limits.rows)
    elif limits.files or limits.rows:
        log.warning(
            "collection %r is partitioned, so that files of one commit may each have a part of a key's rows: "
            "its epochs are not cut by `limits`, or an earlier row could come after a later one",
            source.collection,
        )
    stream = spark.readStream.options(**options).table(table)
    missing = [name for name in ("_lsn", "_row") if name not in stream.columns]
    if missing:
        raise ConfigError(
            f"table {table} has no column {missing[0]!r}, so it is not a collection's: "
            "read it with `source: {format: iceberg}` and say what it is ordered by"
        )
    return OpenedSource(
        stream,
        frame_of_columns(stream.schema, collection, ["_lsn", "_row"], is_ours=True),
        f"collection {'.'.join(catalog.identifier(source.collection))}",
        lambda: opened.incarnation,
        opened.check,
        opened.lost,
        is_cut=opened.is_cut,
    )


class _Table:
    """A collection's table as it was when its stream was opened.

    A stream does not see columns that the table gets later. Whoever writes them adds them to the table first.
    So what an epoch reads has no others than the table has when the epoch begins.
    """

    def __init__(self, spark: SparkSession, name: str, collection: str) -> None:
        java: Any = spark._jvm
        iceberg = java.org.apache.iceberg.spark
        self._collection = collection
        self._convert = iceberg.SparkSchemaUtil.convert
        self._table = iceberg.Spark3Util.loadIcebergTable(spark._jsparkSession, name)
        self._columns = self._convert(self._table.schema()).catalogString()
        self.is_partitioned = self._has_partitions()
        self.incarnation = f"table {self._table.uuid()}"

    def check(self) -> None:
        self._table.refresh()
        columns = self._convert(self._table.schema()).catalogString()
        if columns != self._columns or self._has_partitions() != self.is_partitioned:
            raise Transient(
                f"the table of collection {self._collection!r} has other columns or partitions than when it "
                "was opened: it is opened again"
            )

    def lost(self, position: JsonObject | None, was_read: bool) -> Lost | None:  # noqa: ARG002
        """Rows are read by the snapshots that added them: where one has expired, so have its rows."""
        self._table.refresh()
        oldest = self._table.currentSnapshot()
        wanted = None if position is None else int(position["snapshot_id"])
        while oldest is not None and oldest.snapshotId() != wanted:
            parent = oldest.parentId()
            before = None if parent is None else self._table.snapshot(parent)
            if before is None:
                break
            oldest = before
        if position is not None:
            if oldest is not None and oldest.snapshotId() == wanted:
                return None
            return Lost(f"snapshot {wanted}, at which it stands, has expired", can_be_skipped=False)
        if oldest is None or not _has_older_rows(oldest):
            return None
        return Lost(f"the snapshots before {oldest.snapshotId()} of its table have expired")

    def is_cut(self, position: JsonObject) -> bool:
        """Whether a partitioned commit has files before a position and after it, which may overlap.

        An epoch is planned before `check` is called, so one that ends there may be planned by the limits of a
        table that was not partitioned until then.
        """
        self._table.refresh()
        snapshot = self._table.snapshot(int(position["snapshot_id"]))
        if snapshot is None:
            return False
        new = [
            one
            for one in snapshot.dataManifests(self._table.io())
            if one.snapshotId() == snapshot.snapshotId()
        ]
        specs = self._table.specs()
        is_partitioned = any(specs.get(one.partitionSpecId()).isPartitioned() for one in new)
        return is_partitioned and 0 < int(position["position"]) < sum(one.addedFilesCount() for one in new)

    def _has_partitions(self) -> bool:
        """Now, or when some of its files were written."""
        return any(spec.isPartitioned() for spec in self._table.specs().values())


def _has_older_rows(snapshot: Any) -> bool:
    """Whether there are rows in an Iceberg snapshot that it did not add itself.

    Of one whose parent has expired, some say that it has none.
    """
    summary = snapshot.summary()
    added = int(summary.get("added-records") or 0) if snapshot.operation() == "append" else 0
    return snapshot.parentId() is not None or int(summary.get("total-records") or added) > added


def _kafka(
    spark: SparkSession,
    source: KafkaSource,
    collection: Collection,
    limits: Limits,
    start: Mapping[str, int] | None,
    accepts_loss: bool,
) -> OpenedSource:
    starting = source.starting_offsets
    if begins_at_end(starting):
        start = first_offsets(spark, source, starting, start)
        starting = json.dumps({source.topic: start})
    options = {f"kafka.{name}": value for name, value in source.options.items()}
    options |= {
        "kafka.bootstrap.servers": source.bootstrap,
        "subscribe": source.topic,
        "startingOffsets": starting,
        "kafka.isolation.level": isolation_level(source),
        "failOnDataLoss": str(not accepts_loss).lower(),
    }
    if limits.rows:
        options["maxOffsetsPerTrigger"] = str(limits.rows)
    stream = spark.readStream.format("kafka").options(**options).load().select("value", "partition", "offset")
    description = f"kafka topic {source.topic}"
    incarnation = cache(partial(topic_incarnation, spark, source))
    lost = _lost_messages(spark, [source], starting)
    return OpenedSource(
        stream, frame_of_json(collection), description, incarnation, lost=lost, start=dict(start or {})
    )


def _lost_messages(
    spark: SparkSession, topics: Sequence[KafkaSource], starting: str
) -> Callable[[JsonObject | None, bool], Lost | None]:
    """Makes `OpenedSource.lost` of topics; `starting` is where they begin, as Spark takes it."""
    begins = {} if starting == "earliest" else json.loads(starting)

    def lost(position: JsonObject | None, was_read: bool) -> Lost | None:
        if position is None and not was_read and not begins:
            return None  # it begins with what is there
        wanted = begins if position is None else position
        found = [lost_offsets(spark, topic, wanted.get(topic.topic, {})) for topic in topics]
        what = ", and ".join(filter(None, found))
        return Lost(what) if what else None

    return lost


def _format(
    spark: SparkSession,
    source: FormatSource,
    collection: Collection,
    start: Mapping[str, int] | None,
    accepts_loss: bool,
) -> OpenedSource:
    reader = spark.readStream.format(source.format).options(**dict(source.options))
    if source.schema:
        reader = reader.schema(source.schema)
    topics = topics_of(source) if keeps_start(source) else []
    starting = starting_offsets(source) if topics else ""
    if begins_at_end(starting):
        first = {
            topic.topic: first_offsets(spark, topic, starting, _of_topic(topic, start)) for topic in topics
        }
        starting = json.dumps(first)
        reader = reader.option("startingOffsets", starting)
        start = {
            f"{topic}-{partition}": offset
            for topic, offsets in first.items()
            for partition, offset in offsets.items()
        }
    is_told = bool(topics) and fails_on_loss(source)
    if accepts_loss and is_told:
        reader = reader.option("failOnDataLoss", "false")
    # A path is an option like any other; as an argument it would be given twice.
    opened = source_from_dataframe(reader.load(), collection, source.order_by, f"format {source.format}")
    return replace(
        opened,
        incarnation=partial(_what_it_reads, spark, source),
        lost=_lost_messages(spark, topics, starting) if is_told else None,
        lists_files=source.format.lower() in FILE_FORMATS,
        start=dict(start or {}),
    )


def _of_topic(topic: KafkaSource, start: Mapping[str, int] | None) -> dict[str, int] | None:
    """Selects the partitions of one topic from a start that was kept of several."""
    if start is None:
        return None
    parts = [(*name.rpartition("-"), offset) for name, offset in start.items()]
    return {partition: offset for name, _, partition, offset in parts if name == topic.topic}


def _what_it_reads(spark: SparkSession, source: FormatSource) -> str:
    """Describes it by the options that say it: others are about how it is read, or by whom."""
    if topics := topics_of(source):
        return ", ".join(topic_incarnation(spark, topic) for topic in topics)
    options = {name.lower(): value for name, value in source.options.items()}
    found = [f"{name} {options[name]}" for name in _WHAT_IS_READ if name in options]
    return ", ".join([*found, *(f"ordered by {name}" for name in source.order_by)])


def source_from_dataframe(
    stream: DataFrame, collection: Collection, order_by: tuple[str, ...], description: str
) -> OpenedSource:
    """Opens any streaming DataFrame whose columns are the collection's properties."""
    unknown = [name for name in order_by if name not in stream.columns]
    if unknown:
        known = ", ".join(stream.columns)
        raise ConfigError(f"{description}: it is ordered by {unknown[0]!r}, and its columns are {known}")
    if order_by:
        make = frame_of_columns(stream.schema, collection, order_by, breaks_ties=True)
        return OpenedSource(stream, make, description)
    if order_matters(collection):
        raise ConfigError(
            f"{description}: of two rows with one key the last wins, and nothing says which that is: name "
            "the columns that tell in `order_by`"
        )
    return OpenedSource(stream, _in_any_order(stream.schema, collection), description)


def order_matters(collection: Collection) -> bool:
    """Whether a reduction depends on which document was written first."""
    root = Location(collection.schema)
    if root.annotation.strategy is not Strategy.MERGE or "properties" not in collection.schema:
        return True
    keys = {pointer_tokens(pointer)[0] for pointer in collection.key}
    others = [root.member(name).annotation for name in collection.schema["properties"] if name not in keys]
    return any(one.strategy not in _ANY_ORDER or one.key for one in others)


def _in_any_order(schema: StructType, collection: Collection) -> MakeFrame:
    numbered = StructType([*schema.fields, StructField(_NUMBER, LongType())])
    make = frame_of_columns(numbered, collection, [_NUMBER], unseen=[_NUMBER])
    return lambda rows: make(rows.withColumn(_NUMBER, F.monotonically_increasing_id()))
