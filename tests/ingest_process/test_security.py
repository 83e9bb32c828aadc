"""TLS and tokens, end to end: who gets in, who may do what, and what everybody else is told."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
import yaml
from pyarrow import flight

import headrace
from headrace.client import Reconnect, Tier
from headrace.errors import Unauthenticated, Unauthorized
from headrace.ingest.tokens import Roles, new_token
from tests.ingest_process.serving import SCHEMA, Serving, action, error_of, exchange, hang_up, rows
from tests.waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.processes

ROLES = {
    "admin": Roles(admin=True),
    "writer": Roles(write=("orders",)),
    "reader": Roles(read=("orders",)),
    "both": Roles(write=("*",), read=("*",)),
    "stranger": Roles(write=("shop",), read=("shop",)),
}
QUICK = Reconnect(
    first_pause=0.01,
    longest_pause=0.1,
    give_up_after=DEADLINE_SECONDS,
    open_timeout=DEADLINE_SECONDS,
    ack_timeout=DEADLINE_SECONDS,
)


class Secured:
    """A server with TLS and tokens, and clients of it."""

    def __init__(self, folder: Path) -> None:
        self._authority = trustme.CA()
        issued = self._authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(folder / "key.pem")
        issued.cert_chain_pems[0].write_to_path(folder / "certificate.pem")
        made = {name: new_token(name, roles) for name, roles in ROLES.items()}
        self.tokens = {name: token for name, (token, _) in made.items()}
        self._entries = {name: entry for name, (_, entry) in made.items()}
        self._path = folder / "tokens.yaml"
        self.write_tokens(*ROLES)
        self._path.chmod(0o600)
        tls = {"certificate": "certificate.pem", "key": "key.pem"}
        serve = {"host": "127.0.0.1", "tls": tls, "tokens": "tokens.yaml"}
        config = {"serve": serve, "ingest": {"commit_interval": "1h"}}
        self.serving = Serving(folder / "data", config=config)

    @property
    def roots(self) -> bytes:
        return self._authority.cert_pem.bytes()

    def write_tokens(self, *names: str) -> None:
        entries = [entry for name in names for entry in yaml.safe_load(self._entries[name])]
        self._path.write_text(yaml.safe_dump(entries))

    def stock(self) -> flight.FlightClient:
        return flight.FlightClient(self.serving.url, tls_root_certs=self.roots)

    def options(self, token: str | None) -> flight.FlightCallOptions:
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        return flight.FlightCallOptions(headers=headers, timeout=DEADLINE_SECONDS)

    def page(self, path: str, token: str | None = None) -> tuple[int, str]:
        context = ssl.create_default_context(cadata=self.roots.decode())
        url = f"https://127.0.0.1:{self.serving.metrics_port}{path}"
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            request = urllib.request.Request(url, headers=headers)
            with urllib.request.urlopen(request, context=context, timeout=DEADLINE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    with made.serving, made.stock() as client:
        assert made.serving.url.startswith("grpc+tls://127.0.0.1:")
        admin = made.options(made.tokens["admin"])
        for name in ("orders", "shop"):
            written(client, admin, name)
        yield made


Call = Callable[[flight.FlightClient, flight.FlightCallOptions], Any]


def written(
    client: flight.FlightClient, options: flight.FlightCallOptions, collection: str = "orders"
) -> int:
    """Writes a row, and returns its LSN."""
    writer, reader = exchange(client, collection, options)
    try:
        writer.begin(SCHEMA)
        writer.write_batch(rows(1))
        lsn: int = reader.read_chunk().data.column("lsn")[0].as_py()
        return lsn
    finally:
        hang_up(writer, reader)


ORDERS = flight.FlightDescriptor.for_path("orders")
TICKET = flight.Ticket(b'{"collection": "orders"}')
CALLS: dict[str, Call] = {
    "write": written,
    "create": lambda client, options: action(
        client,
        "create_collection",
        options,
        name="orders",
        arrow_schema=b64encode(SCHEMA.serialize()).decode(),
    ),
    "flush": lambda client, options: action(client, "flush", options, level="LOCAL_DISK"),
    "read": lambda client, options: client.do_get(TICKET, options).read_all(),
    "describe": lambda client, options: action(client, "describe_collection", options, name="orders"),
    "schema": lambda client, options: client.get_schema(ORDERS, options),
    "info": lambda client, options: client.get_flight_info(ORDERS, options),
    "watermarks": lambda client, options: action(client, "watermarks", options),
    "health": lambda client, options: action(client, "health", options),
    "collections": lambda client, options: action(client, "list_collections", options),
    "flights": lambda client, options: list(client.list_flights(options=options)),
    "actions": lambda client, options: client.list_actions(options),
}
ANYBODY = {"watermarks", "health", "collections", "flights", "actions"}
# pyarrow 26 hands on no Flight errors from or to GetSchema, only their message.
REFUSALS = (flight.FlightError, pa.ArrowException, OSError)
MAY = {
    "admin": set(CALLS),
    "writer": {"write", "create", "flush"} | ANYBODY,
    "reader": {"read", "describe", "schema", "info"} | ANYBODY,
    "both": set(CALLS),
    "stranger": {"flush"} | ANYBODY,
}


@pytest.mark.parametrize(
    ("name", "call"), [(name, call) for name in ROLES for call in CALLS if call in MAY[name]]
)
def test_what_a_token_allows(name: str, call: str, secured: Secured) -> None:
    with secured.stock() as client:
        CALLS[call](client, secured.options(secured.tokens[name]))


@pytest.mark.parametrize(
    ("name", "call"), [(name, call) for name in ROLES for call in CALLS if call not in MAY[name]]
)
def test_what_a_token_does_not_allow(name: str, call: str, secured: Secured) -> None:
    with secured.stock() as client, pytest.raises(REFUSALS) as refused:
        CALLS[call](client, secured.options(secured.tokens[name]))
    assert f"token {name!r} may not " in str(refused.value)
    if call != "schema":
        assert isinstance(refused.value, flight.FlightUnauthorizedError)
        told = error_of(refused.value)
        assert (told["error"], told["transient"]) == ("Unauthorized", False)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "token", [None, "", "hr_made_up_by_somebody", "x" * 5_000], ids=lambda token: str(token)[:12]
)
def test_without_a_known_token_nothing_is_answered(token: str | None, call: str, secured: Secured) -> None:
    with secured.stock() as client, pytest.raises(REFUSALS) as refused:
        CALLS[call](client, secured.options(token))
    assert "token" in str(refused.value)
    if call != "schema":
        assert isinstance(refused.value, flight.FlightUnauthenticatedError)
        told = error_of(refused.value)
        assert (told["error"], told["transient"]) == ("Unauthenticated", False)


def test_others_are_not_shown(secured: Secured) -> None:
    with secured.stock() as client:
        known = secured.options(secured.tokens["reader"])
        assert [found["name"] for found in CALLS["collections"](client, known)["collections"]] == ["orders"]
        assert [info.descriptor.path for info in CALLS["flights"](client, known)] == [[b"orders"]]
        assert "sessions" not in CALLS["health"](client, known)
        assert "sessions" in CALLS["health"](client, secured.options(secured.tokens["admin"]))


def test_our_client(secured: Secured) -> None:
    url = secured.serving.url
    with headrace.connect(url, token=secured.tokens["both"], tls_roots=secured.roots) as client:
        with client.writer("own") as writer:
            writer.write_durable(rows(5), Tier.LOCAL_DISK, timeout=DEADLINE_SECONDS)
        assert client.read("own").read_all()["id"].to_pylist() == [5]
    with (
        headrace.connect(url, tls_roots=secured.roots) as nobody,
        pytest.raises(Unauthenticated, match="wants a token"),
    ):
        nobody.health()
    with headrace.connect(url, token=secured.tokens["reader"], tls_roots=secured.roots) as reader:
        writer = reader.writer("orders", reconnect=QUICK)
        with pytest.raises(Unauthorized, match="may not write collection 'orders'"):
            writer.write_durable(rows(6), timeout=DEADLINE_SECONDS)
        writer.close(timeout=DEADLINE_SECONDS)


def test_without_its_certificate_the_server_is_not_trusted(secured: Secured) -> None:
    stranger = trustme.CA().cert_pem.bytes()
    with (
        flight.FlightClient(secured.serving.url, tls_root_certs=stranger) as client,
        pytest.raises(flight.FlightUnavailableError),
    ):
        CALLS["health"](client, secured.options(secured.tokens["admin"]))


def test_the_pages_for_machines(secured: Secured) -> None:
    status, text = secured.page("/metrics")
    assert status == 401
    assert "this server wants a token" in json.loads(text)["error"]
    assert secured.page("/metrics", "hr_made_up_by_somebody")[0] == 401
    status, text = secured.page("/metrics", secured.tokens["reader"])
    assert status == 200
    assert "headrace_unauthenticated_calls_total" in text
    wait_until(lambda: json.loads(secured.page("/readyz")[1])["status"] == "ok")  # the tables have answered
    status, text = secured.page("/readyz")  # probes bring no token, and learn nothing more
    assert (status, json.loads(text)) == (200, {"status": "ok", "accepts_writes": True})
    assert "watermarks" in json.loads(secured.page("/readyz", secured.tokens["reader"])[1])


def test_a_token_that_is_withdrawn_while_its_stream_is_open(secured: Secured) -> None:
    with secured.stock() as client:
        options = secured.options(secured.tokens["writer"])
        writer, reader = exchange(client, "orders", options)
        writer.begin(SCHEMA)
        writer.write_batch(rows(70))
        lsn = reader.read_chunk().data.column("lsn")[0].as_py()
        secured.write_tokens(*(name for name in ROLES if name != "writer"))
        try:
            with pytest.raises(flight.FlightUnauthenticatedError) as refused:
                _write_until_refused(writer, reader)
            assert "token 'writer' was changed or withdrawn" in error_of(refused.value)["message"]
            with pytest.raises(flight.FlightUnauthenticatedError):
                CALLS["health"](client, options)
            found = CALLS["read"](client, secured.options(secured.tokens["reader"]))
            assert lsn in found["_lsn"].to_pylist()  # what it wrote before stands
        finally:
            secured.write_tokens(*ROLES)
            hang_up(writer, reader)


def _write_until_refused(writer: Any, reader: Any) -> None:
    while True:
        writer.write_batch(rows(71))
        reader.read_chunk()
