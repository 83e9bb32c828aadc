"""What a materialization becomes before it runs: its connector is asked, and its fields are chosen."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import grpc

from headrace.connectors.registry import find_connector
from headrace.errors import HeadraceError, ProtocolError
from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding, Materialization
from headrace.model.reductions import check_annotations
from headrace.pipeline.settings import BindingSettings, MaterializationSettings
from headrace.pipeline.sink_planning import PlannedSink, plan_sinks
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
    """The same for as long as the block runs: a connection has threads and a socket, which stay otherwise."""
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
    """What the connector says now; changes nothing."""
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
    """What there is to say of fields where no connector has a say: sinks take them all."""
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
    """The same error, of its kind and with its fields, that says which materialization it is about."""
    again = HeadraceError.from_json(error.to_json())
    again.message = f"materialization {name!r}: {error.message}"
    again.args = (again.message,)
    return again
