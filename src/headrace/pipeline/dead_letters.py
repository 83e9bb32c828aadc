"""Rows that a rule dropped: written with the epoch that they were read in, or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote

from headrace.errors import ConfigError, UnexpectedFailure
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.settings import DeadLetterSettings
from headrace.sinks.contract import Epoch, Sink
from headrace.sinks.iceberg import IcebergSink
from headrace.sinks.parquet import ParquetSink, local_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "dead-letters"
SCHEMA = (
    "materialization string, collection string, binding int, epoch bigint, failed_at timestamp, "
    "rules array<string>, row string, source string"
)


class HasDead(Protocol):
    """What this sink needs of an epoch's rows; `quality.Split` has it."""

    @property
    def dead(self) -> DataFrame | None: ...


class DeadLetterSink(Sink):
    """Writes `rows.dead` by another sink. Its handles say under `rows` how many there were."""

    name = NAME

    def __init__(self, sink: ParquetSink | IcebergSink) -> None:
        self._sink = sink

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._sink.start(decided, handle, fence)

    def prepare(self, epoch: Epoch, rows: HasDead) -> JsonObject:
        handle = self._sink.prepare(epoch, rows.dead)
        counted = getattr(rows, "dead_count", None)
        if counted is not None and counted != handle["rows"]:
            self._sink.abort(epoch.number, handle)
            raise UnexpectedFailure(
                f"{counted} rows of epoch {epoch.number} are dead and {handle['rows']} dead letters were "
                "written: a source gave other rows when it was read again"
            )
        return handle

    def commit(self, epoch: int, handle: JsonObject) -> None:
        self._sink.commit(epoch, handle)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        self._sink.abort(epoch, handle)

    def rewind(self, epoch: int) -> None:
        """Removes the dead letters of later epochs, which will come again. May be repeated.

        For when the endpoint decides where to go on, and went back: it was restored from an older dump.
        """
        self._sink.rewind(epoch)


def parquet_location(settings: DeadLetterSettings, materialization: str) -> str:
    """Several materializations may share a folder; each has a partition of it."""
    return str(local_folder(settings.location) / f"materialization={quote(materialization, safe=' ')}")


def make_dead_letter_sink(
    settings: DeadLetterSettings,
    materialization: str,
    spark: SparkSession,
    catalog: CatalogSettings | None,
) -> DeadLetterSink:
    if not settings.location:
        raise ConfigError(
            f"dead letters of {materialization!r} have no location: write a folder's URL, or a table's name"
        )
    if settings.format == "parquet":
        location = parquet_location(settings, materialization)
        return DeadLetterSink(ParquetSink(NAME, location, partitions=["materialization"]))
    if settings.format == "iceberg":
        if catalog is None:
            raise ConfigError(
                f"dead letters of {materialization!r} are an Iceberg table, and there is no catalog: "
                "configure one, or use the format parquet"
            )
        return DeadLetterSink(_iceberg_sink(settings, materialization, spark, catalog))
    raise ConfigError(
        f"dead letters of {materialization!r} have the format {settings.format!r}: parquet or iceberg"
    )


def table_of(settings: DeadLetterSettings, catalog: CatalogSettings) -> tuple[str, ...]:
    """The location is a table's name, in the catalog's namespace unless it names another."""
    parts = tuple(settings.location.split("."))
    if parts[0] == catalog.name and len(parts) > 2:
        parts = parts[1:]
    return parts if len(parts) > 1 else catalog.identifier(parts[0])


def _iceberg_sink(
    settings: DeadLetterSettings, materialization: str, spark: SparkSession, catalog: CatalogSettings
) -> IcebergSink:
    from headrace.pipeline.spark_catalogs import catalog_conf

    for key, value in catalog_conf(catalog).items():
        spark.conf.set(key, value)
    return IcebergSink(
        NAME,
        spark,
        catalog.name,
        table_of(settings, catalog),
        writer=materialization,
        schema=SCHEMA,
        owned="materialization",
        properties=dict(catalog.table_properties),
    )
