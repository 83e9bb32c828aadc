"""Plans a materialization before it runs.

Its connector is asked, its fields are chosen, each binding gets its place in the sinks, and Spark gets the
jars that all of them need.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc

from headrace.connectors.registry import find_connector
from headrace.errors import ConfigError, HeadraceError, ProtocolError
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding, Materialization
from headrace.model.reductions import check_annotations
from headrace.pipeline.settings import (
    BindingSettings,
    CollectionSource,
    FormatSource,
    KafkaSource,
    MaterializationSettings,
    PipelineSettings,
    SinkSettings,
    SinkTarget,
)
from headrace.pipeline.sinks import EPOCH, BindingSink, SinkRows
from headrace.pipeline.state_paths import canonical_place
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.grpc import GrpcConnector
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import (
    Apply,
    Constraint,
    ConstraintKind,
    Delivery,
    Validate,
    ValidateBinding,
    Validated,
    ValidatedBinding,
)
from headrace.protocol.selection import select_fields
from headrace.sinks.contract import Place
from headrace.sinks.registry import find_sink
from headrace.spark.catalogs import needs_of
from headrace.spark.lines import Needs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = "1"
"""Of a materialization, in Apply and Open."""


@dataclass(frozen=True)
class Planned:
    materialization: Materialization
    validated: Validated
    client: ConnectorClient | None
    """None if there are sinks alone."""
    sinks: tuple[PlannedSink, ...] = ()

    def destinations(self, index: int) -> list[str]:
        """Where a binding goes."""
        binding = self.materialization.bindings[index]
        sinks = [f"{sink.format} {sink.place.location}" for sink in self.sinks if sink.index == index]
        return sinks if self.client is None else [".".join(binding.resource_path), *sinks]

    def needs_document(self, index: int) -> bool:
        """Whether whole documents of a binding are stored or reduced anywhere."""
        kept = [sink.rows.binding for sink in self.sinks if sink.index == index]
        if self.client is not None:
            kept.append(self.materialization.bindings[index])
        return any(binding.needs_document for binding in kept)

    def close(self) -> None:
        """Ends the connection to the connector, if it has one of its own; nothing is applied after it."""
        if self.client is not None:
            _close(self.client)


def connector_client(settings: MaterializationSettings) -> ConnectorClient:
    """A client of its own for whoever calls, such as a Spark task."""
    if not settings.connector_address:
        return InProcess(find_connector(settings.connector))
    tls = settings.connector_tls
    credentials = grpc.ssl_channel_credentials(tls.roots, tls.key, tls.certificate) if tls else None
    client = GrpcConnector(settings.connector_address, credentials)
    client.wait_until_ready()
    return client


@contextmanager
def connected(settings: MaterializationSettings) -> Iterator[ConnectorClient]:
    """Ends the connection with the block; its threads and socket stay otherwise."""
    client = connector_client(settings)
    try:
        yield client
    finally:
        _close(client)


def _close(client: ConnectorClient) -> None:
    if isinstance(client, GrpcConnector):
        client.close()


def plan(settings: MaterializationSettings, catalog: CatalogSettings | None = None) -> Planned:
    """Asks the connector whether this can work, and chooses the fields; changes nothing."""
    asked = tuple(ValidateBinding(binding.collection, binding.resource) for binding in settings.bindings)
    try:
        for binding in asked:
            check_annotations(binding.collection.schema)
        client, validated = _validated(settings, asked)
        chosen = tuple(map(_chosen, settings.bindings, asked, validated.bindings))
        return Planned(
            Materialization(settings.name, settings.connector, settings.endpoint, chosen),
            validated,
            client,
            tuple(plan_sinks(settings, chosen, catalog)),
        )
    except HeadraceError as error:
        raise _of(settings.name, error) from error


def planned_sinks(
    settings: MaterializationSettings, catalog: CatalogSettings | None = None
) -> tuple[PlannedSink, ...]:
    """Without asking the connector, whose endpoint may be away. Rows may have fewer columns than these say:
    beside a connector, sinks keep what it stores."""
    return plan(replace(settings, connector=""), catalog).sinks


def _validated(
    settings: MaterializationSettings, asked: Sequence[ValidateBinding]
) -> tuple[ConnectorClient | None, Validated]:
    if not settings.connector:
        return None, Validated(tuple(map(_taken_by_sinks, range(len(asked)), asked)))
    client = connector_client(settings)
    return client, _ask(client, settings, asked)


def ask(settings: MaterializationSettings) -> Validated:
    """Asks the connector what it would do with the materialization; changes nothing."""
    asked = [ValidateBinding(binding.collection, binding.resource) for binding in settings.bindings]
    with connected(settings) as client:
        return _ask(client, settings, asked)


def _ask(
    client: ConnectorClient, settings: MaterializationSettings, asked: Sequence[ValidateBinding]
) -> Validated:
    validated = client.validate(Validate(settings.name, settings.connector, settings.endpoint, tuple(asked)))
    if len(validated.bindings) != len(asked):
        raise ProtocolError(
            f"Validated has {len(validated.bindings)} bindings, and {len(asked)} were asked about",
            message_name="Validated",
            expected="one binding for each",
        )
    return validated


def _taken_by_sinks(index: int, asked: ValidateBinding) -> ValidatedBinding:
    """Answers for sinks, where no connector has a say: they take all fields."""
    constraints = {
        field.name: Constraint(ConstraintKind.RECOMMENDED, "sinks keep all fields")
        for field in asked.collection.fields
    }
    constraints |= {
        field.name: Constraint(ConstraintKind.REQUIRED, "it is part of the key")
        for field in asked.collection.key_fields
    }
    constraints[DOCUMENT_FIELD] = Constraint(
        ConstraintKind.OPTIONAL, "columns have what it has; a view that is reduced keeps it all the same"
    )
    path = ("sinks", str(index), asked.collection.name)
    return ValidatedBinding(constraints, path, delta_updates=True, delivery=Delivery.STAGED)


def apply(planned: Planned, dry_run: bool = False, *, adopts: bool = False) -> str:
    """Makes the endpoint ready, and says what was done; with `dry_run`, what would be. Empty for nothing.

    Sinks need nothing: they make their tables with the first epoch.
    """
    if planned.client is None:
        return ""
    try:
        wanted = Apply(planned.materialization, VERSION, dry_run, adopts=adopts)
        return planned.client.apply(wanted).action_description
    except HeadraceError as error:
        raise _of(planned.materialization.name, error) from error


def _chosen(settings: BindingSettings, asked: ValidateBinding, answered: ValidatedBinding) -> Binding:
    return select_fields(asked, answered, settings.include, settings.exclude)


def _of(name: str, error: HeadraceError) -> HeadraceError:
    """Makes the same error, of its kind and with its fields, say which materialization it is about."""
    again = HeadraceError.from_json(error.to_json())
    again.message = f"materialization {name!r}: {error.message}"
    again.args = (again.message,)
    return again


@dataclass(frozen=True)
class PlannedSink:
    """A binding's rows in one sink, and where they go."""

    name: str
    """The name that its handles are kept under: it stays the same for as long as the materialization does."""
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
        taken = places.setdefault(canonical_place(one.format, one.place.location), one.name)
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


def needs(settings: PipelineSettings) -> set[Needs]:
    """Returns what Spark has to have for all materializations."""
    found: set[Needs] = set()
    for one in settings.materializations:
        formats = {sink.format for sink in one.sinks}
        if one.dead_letters is not None:
            formats.add(one.dead_letters.format)
        uses_catalog = "iceberg" in formats
        for name in formats:
            found |= {Needs(need) for need in find_sink(name).needs}
        for binding in one.bindings:
            match binding.source:
                case KafkaSource() | FormatSource(format="kafka"):
                    found.add(Needs.KAFKA)
                case CollectionSource() | FormatSource(format="iceberg"):
                    uses_catalog = True
        if uses_catalog and settings.catalog is not None:
            found |= needs_of(settings.catalog)
    return found
