"""What a materialization reads: one stream of all its bindings, each row under the number of its binding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.collections import Collection, pointer_tokens
from headrace.model.reduction_schema import Location, Strategy
from headrace.pipeline.frames import frame_of_columns, quote
from headrace.pipeline.json_values import frame_of_json
from headrace.pipeline.settings import (
    BindingSettings,
    CollectionSource,
    FormatSource,
    KafkaSource,
    Limits,
    MaterializationSettings,
)

BINDING = "binding"
_NUMBER = "_number"
_ANY_ORDER = (Strategy.SUM, Strategy.MINIMIZE, Strategy.MAXIMIZE)


@dataclass(frozen=True)
class Reading:
    """The source of one binding."""

    stream: DataFrame
    frame: Callable[[DataFrame], DataFrame]
    """From rows of the stream to a frame of documents."""
    description: str
    """What it reads; another text means another source."""


def combined_stream(readings: list[Reading]) -> DataFrame:
    """One row for each of any source: `binding`, and the row as a struct in `b0`, `b1`, ..."""
    streams = [
        reading.stream.select(F.lit(index).alias(BINDING), F.struct("*").alias(f"b{index}"))
        for index, reading in enumerate(readings)
    ]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), streams)


def rows_of(epoch: DataFrame, index: int, is_alone: bool) -> DataFrame:
    """What one binding read in an epoch of the combined stream."""
    chosen = epoch if is_alone else epoch.where(F.col(BINDING) == index)
    return chosen.select(f"b{index}.*")


def open_sources(
    spark: SparkSession, settings: MaterializationSettings, catalog: CatalogSettings | None
) -> list[Reading]:
    return [_open(spark, binding, settings.limits, catalog) for binding in settings.bindings]


def _open(
    spark: SparkSession, binding: BindingSettings, limits: Limits, catalog: CatalogSettings | None
) -> Reading:
    match binding.source:
        case CollectionSource():
            return _collection(spark, binding.source, binding.collection, limits, catalog)
        case KafkaSource():
            return _kafka(spark, binding.source, binding.collection, limits)
        case FormatSource():
            return _format(spark, binding.source, binding.collection)


def table_of(source: CollectionSource, catalog: CatalogSettings) -> str:
    """The name of a collection's table in Spark."""
    return ".".join(quote(part) for part in (catalog.name, *catalog.identifier(source.collection)))


def _collection(
    spark: SparkSession,
    source: CollectionSource,
    collection: Collection,
    limits: Limits,
    catalog: CatalogSettings | None,
) -> Reading:
    if catalog is None:
        raise ConfigError(f"collection {source.collection!r} is read from its table, and there is no catalog")
    options = {
        # What is deleted from a table, or written anew in it, was written before.
        "streaming-skip-delete-snapshots": "true",
        "streaming-skip-overwrite-snapshots": "true",
    }
    if limits.files:
        options["streaming-max-files-per-micro-batch"] = str(limits.files)
    if limits.rows:
        options["streaming-max-rows-per-micro-batch"] = str(limits.rows)
    stream = spark.readStream.options(**options).table(table_of(source, catalog))
    missing = [name for name in ("_lsn", "_row") if name not in stream.columns]
    if missing:
        raise ConfigError(
            f"table {table_of(source, catalog)} has no column {missing[0]!r}, so it is not a collection's: "
            "read it with `source: {format: iceberg}` and say what it is ordered by"
        )
    return Reading(
        stream,
        lambda rows: frame_of_columns(rows, collection, ["_lsn", "_row"]),
        f"collection {'.'.join(catalog.identifier(source.collection))}",
    )


def _kafka(spark: SparkSession, source: KafkaSource, collection: Collection, limits: Limits) -> Reading:
    options = {f"kafka.{name}": value for name, value in source.options.items()}
    options |= {
        "kafka.bootstrap.servers": source.bootstrap,
        "subscribe": source.topic,
        "startingOffsets": source.starting_offsets,
        # What a transaction aborted was never written.
        "kafka.isolation.level": source.options.get("isolation.level", "read_committed"),
    }
    if limits.rows:
        options["maxOffsetsPerTrigger"] = str(limits.rows)
    stream = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .select(F.col("value").cast("string").alias("value"), "partition", "offset")
    )
    return Reading(stream, lambda rows: frame_of_json(rows, collection), f"kafka topic {source.topic}")


def _format(spark: SparkSession, source: FormatSource, collection: Collection) -> Reading:
    reader = spark.readStream.format(source.format).options(**dict(source.options))
    if source.schema:
        reader = reader.schema(source.schema)
    # A path is an option like any other; as an argument it would be given twice.
    return reading_of(reader.load(), collection, source.order_by, f"format {source.format}")


def reading_of(
    stream: DataFrame, collection: Collection, order_by: tuple[str, ...], description: str
) -> Reading:
    """Of any streaming DataFrame whose columns are the collection's properties."""
    unknown = [name for name in order_by if name not in stream.columns]
    if unknown:
        known = ", ".join(stream.columns)
        raise ConfigError(f"{description}: it is ordered by {unknown[0]!r}, and its columns are {known}")
    if order_by:
        return Reading(stream, lambda rows: frame_of_columns(rows, collection, order_by), description)
    if order_matters(collection):
        raise ConfigError(
            f"{description}: of two rows with one key the last wins, and nothing says which that is: name "
            "the columns that tell in `order_by`"
        )
    return Reading(stream, lambda rows: _in_any_order(rows, collection), description)


def order_matters(collection: Collection) -> bool:
    """Whether a reduction depends on which document was written first."""
    root = Location(collection.schema)
    if root.annotation.strategy is not Strategy.MERGE or "properties" not in collection.schema:
        return True
    keys = {pointer_tokens(pointer)[0] for pointer in collection.key}
    others = [root.member(name).annotation for name in collection.schema["properties"] if name not in keys]
    return any(one.strategy not in _ANY_ORDER or one.key for one in others)


def _in_any_order(rows: DataFrame, collection: Collection) -> DataFrame:
    numbered = rows.withColumn(_NUMBER, F.monotonically_increasing_id())
    return frame_of_columns(numbered, collection, [_NUMBER], unseen=[_NUMBER])
