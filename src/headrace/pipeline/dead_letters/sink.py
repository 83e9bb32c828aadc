"""Rows that a rule dropped: written with the epoch that they were read in, or not at all."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.errors import ConfigError, UnexpectedFailure
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.settings import DeadLetterSettings
from headrace.pipeline.sinks import EpochRows
from headrace.sinks.cleanup import cleaning_up
from headrace.sinks.contract import Epoch, Place, RowSink, Sink
from headrace.sinks.registry import find_sink, sink_formats

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "dead-letters"
SCHEMA = (
    "materialization string, collection string, binding int, epoch bigint, failed_at timestamp, "
    "rules array<string>, row string, source string"
)


class DeadLetterSink(Sink):
    """Writes `rows.dead` by a sink of rows. Its handles name format and location, which may change."""

    name = NAME

    def __init__(self, format_name: str, place: Place, spark: SparkSession, *, forgets: bool = False) -> None:
        """`forgets`: the state survives nothing, so that what is there may be of a run that nobody knows of.

        Its epochs come again under the same numbers, and then what is there of them goes.
        """
        self._format, self._place, self._spark = format_name, place, spark
        self._sink = find_sink(format_name).open(NAME, place, spark)
        self._forgets = forgets
        self._is_new = False

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._is_new = self._forgets and decided is None
        if self._is_new:
            fence = sys.maxsize  # fences begin anew too: all that is staged is from before
        sink = self._sink if not handle else self._sink_of(handle)
        sink.start(decided, handle, fence)
        if sink is not self._sink:
            self._sink.start(decided, None, fence)

    def prepare(self, epoch: Epoch, rows: EpochRows) -> JsonObject:
        if self._is_new:
            self._sink.rewind(epoch.number - 1)
            self._is_new = False
        handle = self._sink.prepare(epoch, rows.dead)
        written = handle.get("rows", 0)
        if rows.dead_count != written:
            with cleaning_up(f"abort the dead letters of epoch {epoch.number}, which failed,"):
                self._sink.abort(epoch.number, handle)
            raise UnexpectedFailure(
                f"{rows.dead_count} rows of epoch {epoch.number} are dead and {written} dead letters were "
                "written: a source gave other rows when it was read again"
            )
        return {"format": self._format, "location": self._place.location, **handle} if handle else {}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            self._sink_of(handle).commit(epoch, handle)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        if handle:
            self._sink_of(handle).abort(epoch, handle)

    def rewind(self, epoch: int) -> None:
        """Removes the dead letters of later epochs, which will come again. May be repeated.

        For when the endpoint decides where to go on, and went back: it was restored from an older dump.
        """
        self._sink.rewind(epoch)

    def refuse_rewind(self, epoch: int) -> None:
        """Refuses what `rewind` would refuse; touches nothing."""
        self._sink.refuse_rewind(epoch)

    def committed(self) -> JsonObject | None:
        """The runtime checkpoint of the last epoch that has dead letters there.

        None if there is none, or if what is there will go when the first epoch is prepared.
        """
        return None if self._is_new else self._sink.committed()

    def _sink_of(self, handle: JsonObject) -> RowSink:
        """Where it was prepared, which need not be where dead letters go now."""
        if (handle["format"], handle["location"]) == (self._format, self._place.location):
            return self._sink
        place = replace(self._place, location=handle["location"])
        return find_sink(handle["format"]).open(NAME, place, self._spark)


def is_there(handle: JsonObject, settings: DeadLetterSettings) -> bool:
    """Whether it was prepared where the settings say: where dead letters go may have changed since.

    One without dead letters says nothing of a place, and is true of any.
    """
    return not handle or (handle["format"], handle["location"]) == (settings.format, settings.location)


def place_of(settings: DeadLetterSettings, materialization: str, catalog: CatalogSettings | None) -> Place:
    """Several materializations may share a place."""
    return Place(
        settings.location,
        materialization,
        SCHEMA,
        owned="materialization",
        catalog=catalog,
        options=settings.options,
    )


def make_dead_letter_sink(
    settings: DeadLetterSettings,
    materialization: str,
    spark: SparkSession,
    catalog: CatalogSettings | None,
    *,
    forgets: bool = False,
) -> DeadLetterSink:
    from headrace.spark.catalogs import catalog_conf

    if not settings.location:
        raise ConfigError(
            f"dead letters of {materialization!r} have no location: write a folder's URL, or a table's name"
        )
    if settings.format not in (known := sink_formats()):
        raise ConfigError(
            f"dead letters of {materialization!r} have the format {settings.format!r}: {' or '.join(known)}"
        )
    if catalog is not None:
        for key, value in catalog_conf(catalog).items():
            spark.conf.set(key, value)
    place = place_of(settings, materialization, catalog)
    try:
        return DeadLetterSink(settings.format, place, spark, forgets=forgets)
    except ConfigError as error:
        raise ConfigError(f"dead letters of {materialization!r}: {error.message}") from None
