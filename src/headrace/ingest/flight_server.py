"""The Arrow Flight calls other than streams of writes, each handed to the part that answers it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyarrow import flight

from headrace.errors import ConfigError
from headrace.ingest.access import Access, Identity, access_middleware, identity_of
from headrace.ingest.actions import Actions
from headrace.ingest.engine import Engine
from headrace.ingest.flight_errors import as_flight_errors
from headrace.ingest.reads import Reads, Ticket
from headrace.ingest.schemas import with_place

_UNKNOWN = -1  # how many records or bytes: nobody counted


class FlightServer(flight.FlightServerBase):  # type: ignore[misc]
    """Listens on a unix socket, to which the port passes calls on."""

    def __init__(self, engine: Engine, reads: Reads, access: Access, socket: Path) -> None:
        super().__init__(f"grpc+unix://{socket}", middleware=access_middleware(access))
        self._engine = engine
        self._reads = reads
        self._actions = Actions(engine)

    def do_get(self, context: Any, ticket: Any) -> Any:
        with as_flight_errors():
            wanted = Ticket.parse(ticket.ticket)
            identity_of(context).require_read(wanted.collection)
            schema, rows = self._reads.open(wanted)
        return flight.GeneratorStream(schema, _guarded(context, rows))

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        with as_flight_errors():
            body = action.body.to_pybytes() if action.body is not None else b""
            yield self._actions.run(action.type, body, identity_of(context))

    def list_actions(self, _context: Any) -> list[tuple[str, str]]:
        return [(name, described) for name, (described, _) in self._actions.known.items()]

    def list_flights(self, context: Any, _criteria: Any) -> Iterator[Any]:
        identity = identity_of(context)
        for name in self._engine.collections.names():
            if identity.may_read(name):
                yield self._info(name)

    def get_flight_info(self, context: Any, descriptor: Any) -> Any:
        with as_flight_errors():
            return self._info(_readable_collection(descriptor, identity_of(context)))

    def get_schema(self, context: Any, descriptor: Any) -> Any:
        with as_flight_errors():
            name = _readable_collection(descriptor, identity_of(context))
            return flight.SchemaResult(with_place(self._engine.collections.schema(name)))

    def _info(self, name: str) -> Any:
        schema = with_place(self._engine.collections.schema(name))
        endpoint = flight.FlightEndpoint(Ticket(name).encode(), [])
        descriptor = flight.FlightDescriptor.for_path(name)
        return flight.FlightInfo(schema, descriptor, [endpoint], _UNKNOWN, _UNKNOWN)


def _path_of(descriptor: Any) -> list[str]:
    if descriptor.descriptor_type != flight.DescriptorType.PATH or not descriptor.path:
        raise ConfigError("the descriptor is not a path")
    try:
        return [step for part in descriptor.path for step in part.decode().split("/")]
    except UnicodeDecodeError:
        raise ConfigError("the descriptor's path is not UTF-8") from None


def _readable_collection(descriptor: Any, identity: Identity) -> str:
    path = _path_of(descriptor)
    if len(path) != 1:
        raise ConfigError(f"the descriptor's path is a collection's name, not {'/'.join(path)!r}")
    identity.require_read(path[0])
    return path[0]


def _guarded(context: Any, rows: Iterator[Any]) -> Iterator[Any]:
    with as_flight_errors():
        if not context.is_cancelled():
            yield from rows
