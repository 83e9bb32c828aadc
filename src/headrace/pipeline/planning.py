"""What a materialization becomes before it runs: its connector is asked, and its fields are chosen."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import grpc

from headrace.connectors.registry import find_connector
from headrace.errors import HeadraceError, ProtocolError
from headrace.model.materializations import Binding, Materialization
from headrace.model.reductions import check_annotations
from headrace.pipeline.settings import BindingSettings, MaterializationSettings
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.grpc import GrpcConnector
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import Apply, Validate, ValidateBinding, Validated, ValidatedBinding
from headrace.protocol.selection import select_fields

VERSION = "1"
"""Of a materialization, in Apply and Open."""


@dataclass(frozen=True)
class Planned:
    materialization: Materialization
    validated: Validated
    client: ConnectorClient

    def close(self) -> None:
        """Ends the connection to the connector, if it has one of its own; nothing is applied after it."""
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


def plan(settings: MaterializationSettings) -> Planned:
    """Asks the connector whether this can work, and chooses the fields; changes nothing."""
    asked = tuple(ValidateBinding(binding.collection, binding.resource) for binding in settings.bindings)
    try:
        for binding in asked:
            check_annotations(binding.collection.schema)
        client = connector_client(settings)
        validated = client.validate(Validate(settings.name, settings.connector, settings.endpoint, asked))
        if len(validated.bindings) != len(asked):
            raise ProtocolError(
                f"Validated has {len(validated.bindings)} bindings, and {len(asked)} were asked about",
                message_name="Validated",
                expected="one binding for each",
            )
        chosen = map(_chosen, settings.bindings, asked, validated.bindings)
        return Planned(
            Materialization(settings.name, settings.connector, settings.endpoint, tuple(chosen)),
            validated,
            client,
        )
    except HeadraceError as error:
        raise _of(settings.name, error) from error


def apply(planned: Planned, dry_run: bool = False) -> str:
    """Makes the endpoint ready, and says what was done; with `dry_run`, what would be. Empty for nothing."""
    try:
        applied = planned.client.apply(Apply(planned.materialization, VERSION, dry_run))
    except HeadraceError as error:
        raise _of(planned.materialization.name, error) from error
    return applied.action_description


def _chosen(settings: BindingSettings, asked: ValidateBinding, answered: ValidatedBinding) -> Binding:
    return select_fields(asked, answered, settings.include, settings.exclude)


def _of(name: str, error: HeadraceError) -> HeadraceError:
    """The same error, of its kind and with its fields, that says which materialization it is about."""
    again = HeadraceError.from_json(error.to_json())
    again.message = f"materialization {name!r}: {error.message}"
    again.args = (again.message,)
    return again
