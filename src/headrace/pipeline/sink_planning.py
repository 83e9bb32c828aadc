"""Which sinks a materialization has, and where each binding goes in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import ConfigError
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding
from headrace.pipeline.binding_sink import BindingSink
from headrace.pipeline.folders import place_of
from headrace.pipeline.settings import MaterializationSettings, SinkSettings, SinkTarget
from headrace.pipeline.sink_rows import EPOCH, SinkRows
from headrace.sinks.contract import Place
from headrace.sinks.registry import find_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class PlannedSink:
    """One binding in one sink."""

    name: str
    """What its handles are kept under, so it stays the same for as long as the materialization does."""
    format: str
    index: int
    """The binding's."""
    place: Place
    rows: SinkRows

    def open(self, spark: SparkSession) -> BindingSink:
        sink = find_sink(self.format).open(self.name, self.place, spark)
        return BindingSink(sink, self.rows, self.place, self.index)

    def __str__(self) -> str:
        kept = "a view" if self.rows.is_view else "appended"
        return f"{self.rows.binding.collection.name} -> {self.format} {self.place.location}, {kept}"


def plan_sinks(
    settings: MaterializationSettings, bindings: Sequence[Binding], catalog: CatalogSettings | None
) -> list[PlannedSink]:
    """Refuses what a format cannot keep; touches nothing."""
    found: list[PlannedSink] = []
    for sink in settings.sinks:
        seen: Counter[str] = Counter()
        for index, (target, binding) in enumerate(zip(sink.targets, bindings, strict=True)):
            if target is None:
                continue
            collection = binding.collection.name
            seen[collection] += 1
            again = f"-{seen[collection]}" if seen[collection] > 1 else ""
            chosen = _as_kept(binding, target, settings.bindings[index].include)
            name = f"{sink.name}.{collection}{again}"
            found.append(_planned(settings.name, sink, index, name, chosen, catalog))
    places: dict[tuple[str, str], str] = {}
    for one in found:
        taken = places.setdefault(place_of(one.format, one.place.location), one.name)
        if taken != one.name:
            raise ConfigError(
                f"sinks {taken} and {one.name} both go to {one.place.location}: give each its own"
            )
    return found


def _as_kept(binding: Binding, target: SinkTarget, include: Sequence[str]) -> Binding:
    """The document is kept if it was asked for, and where the next one is reduced with it."""
    kept = replace(binding, delta_updates=not target.is_view)
    wants = kept.is_loaded or DOCUMENT_FIELD in include
    return replace(kept, document=DOCUMENT_FIELD if wants else None)


def _planned(
    materialization: str,
    sink: SinkSettings,
    index: int,
    name: str,
    binding: Binding,
    catalog: CatalogSettings | None,
) -> PlannedSink:
    target = sink.targets[index]
    assert target is not None
    if target.is_view and not find_sink(sink.format).can_keep_views:
        raise ConfigError(f"sink {sink.name}: {sink.format} keeps no views: write `mode: append`")
    rows = SinkRows(binding, target.is_view)
    columns = {field.name for field in (*binding.keys, *binding.values)}
    for column in columns:
        if column.lower() in rows.reserved:  # Spark does not look at a name's case
            raise ConfigError(
                f"sink {sink.name}: the field {column!r} has the name of a column of its own: rename it, or "
                "exclude it"
            )
    for column in target.partitions:
        if column not in columns:
            raise ConfigError(
                f"sink {sink.name}: there is no column {column!r} to partition by; "
                f"there are {', '.join(sorted(columns))}"
            )
    place = Place(
        target.location,
        materialization,
        rows.schema,
        catalog=catalog,
        epoch="" if target.is_view else EPOCH,
        keys=rows.keys if target.is_view else (),
        key=rows.keys,
        partitions=target.partitions,
        options=sink.options,
    )
    return PlannedSink(name, sink.format, index, place, rows)
