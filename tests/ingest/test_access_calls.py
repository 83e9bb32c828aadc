"""Tokens in Flight calls, over a port."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyarrow import flight

from headrace.ingest.access import Access, access_middleware, identity_of
from headrace.ingest.flight_errors import as_flight_errors
from tests.waiting import DEADLINE_SECONDS

WRITER, READER, ADMIN = "writer-token-0123456789", "reader-token-0123456789", "admin-token-0123456789"
TOKENS: list[dict[str, Any]] = [
    {"name": "writer", "token": WRITER, "roles": {"write": ["orders"]}},
    {"name": "reader", "token": READER, "roles": {"read": ["*"]}},
    {"name": "admin", "token": ADMIN, "roles": {"admin": True}},
]


@pytest.fixture
def tokens_file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.yaml"
    path.write_text(yaml.safe_dump(TOKENS))
    path.chmod(0o600)
    return path


class Echo(flight.FlightServerBase):  # type: ignore[misc]
    """Says who called, and lets only admins and writers of `orders` in."""

    def do_action(self, context: Any, action: Any) -> Iterator[bytes]:
        with as_flight_errors():
            if action.type == "admin":
                identity_of(context).require_admin()
            yield identity_of(context).name.encode()

    def do_exchange(self, context: Any, _descriptor: Any, reader: Any, writer: Any) -> None:
        with as_flight_errors():
            identity_of(context).require_write("orders")
            writer.begin(pa.schema([]))

    def list_flights(self, context: Any, _criteria: Any) -> Iterator[Any]:
        yield from ()

    def get_schema(self, context: Any, _descriptor: Any) -> Any:
        return flight.SchemaResult(pa.schema([("name", pa.string())]))


def serve(middleware: dict[str, Any] | None) -> Iterator[flight.FlightClient]:
    server = Echo("grpc://127.0.0.1:0", middleware=middleware)
    thread = threading.Thread(target=server.serve)
    thread.start()
    with flight.connect(f"grpc://127.0.0.1:{server.port}") as client:
        yield client
    server.shutdown()
    thread.join()


@pytest.fixture
def client(tokens_file: Path) -> Iterator[flight.FlightClient]:
    yield from serve(access_middleware(Access(tokens_file)))


@pytest.fixture
def open_client() -> Iterator[flight.FlightClient]:
    yield from serve(None)


def with_token(token: str) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(
        headers=[(b"authorization", b"Bearer " + token.encode())], timeout=DEADLINE_SECONDS
    )


def called(client: flight.FlightClient, options: flight.FlightCallOptions, action: str = "who") -> str:
    (result,) = client.do_action(action, options)
    return str(result.body.to_pybytes().decode())


CALLS: dict[str, Callable[[flight.FlightClient, flight.FlightCallOptions], Any]] = {
    "do_action": called,
    "do_exchange": lambda client, options: client.do_exchange(flight.FlightDescriptor.for_path("x"), options)[
        1
    ].read_chunk(),
    "list_flights": lambda client, options: list(client.list_flights(options=options)),
    "list_actions": lambda client, options: client.list_actions(options),
    "do_get": lambda client, options: client.do_get(flight.Ticket(b"x"), options).read_all(),
}


def test_a_call_knows_who_makes_it(client: flight.FlightClient) -> None:
    assert called(client, with_token(WRITER)) == "writer"
    assert called(client, with_token(READER)) == "reader"
    assert called(client, with_token(ADMIN), "admin") == "admin"


@pytest.mark.parametrize("token", ["", "not a token that anybody has"])
@pytest.mark.parametrize("call", CALLS)
def test_no_call_gets_in_without_a_token(client: flight.FlightClient, call: str, token: str) -> None:
    options = with_token(token) if token else flight.FlightCallOptions(timeout=DEADLINE_SECONDS)
    with pytest.raises(flight.FlightUnauthenticatedError) as refused:
        CALLS[call](client, options)
    info = json.loads(refused.value.extra_info)
    assert (info["error"], info["transient"]) == ("Unauthenticated", False)


def test_get_schema_does_not_get_in_either(client: flight.FlightClient) -> None:
    """Its refusal is an OSError: pyarrow's client drops what the server said about it."""
    wanted = flight.FlightDescriptor.for_path("x")
    with pytest.raises(OSError, match=r"this server wants a token.*Unauthenticated"):
        client.get_schema(wanted, flight.FlightCallOptions(timeout=DEADLINE_SECONDS))
    assert client.get_schema(wanted, with_token(READER)).schema.names == ["name"]


ROLES_NEEDED: dict[str, Callable[[flight.FlightClient, flight.FlightCallOptions], Any]] = {
    "write": CALLS["do_exchange"],
    "admin": lambda client, options: called(client, options, "admin"),
}


@pytest.mark.parametrize("role", ROLES_NEEDED)
def test_a_call_without_the_role(client: flight.FlightClient, role: str) -> None:
    with pytest.raises(flight.FlightUnauthorizedError, match="token 'reader' may not") as refused:
        ROLES_NEEDED[role](client, with_token(READER))
    assert json.loads(refused.value.extra_info)["error"] == "Unauthorized"


def test_a_server_without_the_middleware_lets_nobody_in(open_client: flight.FlightClient) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match="without its middleware"):
        called(open_client, flight.FlightCallOptions(timeout=DEADLINE_SECONDS))
