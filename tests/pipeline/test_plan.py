"""What a connector is asked before a materialization runs, and what is made of its answers."""

from __future__ import annotations

import pickle
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import trustme

from headrace.connectors.registry import find_connector
from headrace.errors import ConfigError, EndpointUnavailable, Fenced, ProtocolError, SchemaError
from headrace.model.collections import Collection
from headrace.pipeline.plan import Planned, apply, connector_client, plan
from headrace.pipeline.settings import (
    BindingSettings,
    CollectionSource,
    ConnectorTls,
    MaterializationSettings,
)
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.grpc import GrpcConnector, GrpcServer
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import Applied, Apply, Delivery, Spec, Specified, Validate, Validated
from headrace.protocol.stream import RuntimeStream

ORDERS = Collection(
    "orders",
    ("/id",),
    {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"type": "string"},
            "day": {"type": "string", "format": "date"},
            "lines": {"type": "array"},
        },
        "required": ["id"],
    },
)


def settings_of(tmp_path: Path, *bindings: BindingSettings) -> MaterializationSettings:
    endpoint = {"path": str(tmp_path / "sales.db")}
    return MaterializationSettings("sales", "sqlite", endpoint, bindings)


def binding_of(
    table: str = "orders", include: tuple[str, ...] = (), exclude: tuple[str, ...] = ()
) -> BindingSettings:
    return BindingSettings(ORDERS, CollectionSource("orders"), {"table": table}, include, exclude)


def test_fields_are_chosen_for_each_binding(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, binding_of(include=("lines",)), binding_of("names", exclude=("day",)))
    planned = plan(settings)
    assert (planned.materialization.name, planned.materialization.endpoint_type) == ("sales", "sqlite")
    assert planned.materialization.endpoint == settings.endpoint
    orders, names = planned.materialization.bindings
    assert [field.name for field in orders.values] == ["name", "day", "lines"]
    assert [field.name for field in names.values] == ["name"]
    assert names.resource_path == ("main", "names")
    assert [binding.delivery for binding in planned.validated.bindings] == [Delivery.TRANSACTIONAL] * 2
    assert not (tmp_path / "sales.db").exists()


def test_apply_is_said_then_done_then_nothing(tmp_path: Path) -> None:
    planned = plan(settings_of(tmp_path, binding_of()))
    assert 'CREATE TABLE "main"."orders"' in apply(planned, dry_run=True)
    assert not (tmp_path / "sales.db").exists()
    assert 'CREATE TABLE "main"."orders"' in apply(planned)
    with closing(sqlite3.connect(tmp_path / "sales.db")) as database:
        assert database.execute("SELECT count(*) FROM orders").fetchone() == (0,)
    assert apply(planned) == ""


def test_a_connector_elsewhere_is_asked_the_same(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, binding_of(exclude=("day",)))
    server = GrpcServer(find_connector("sqlite"), "127.0.0.1:0")
    server.start()
    try:
        far = plan(replace(settings, connector_address=f"127.0.0.1:{server.port}"))
        assert isinstance(far.client, GrpcConnector)
        near = plan(settings)
        assert isinstance(near.client, InProcess)
        assert far.materialization == near.materialization
        assert far.validated == near.validated
        assert apply(far) == apply(plan(replace(settings, endpoint={"path": str(tmp_path / "other.db")})))
        far.client.close()
    finally:
        server.stop(0)


def test_a_connector_elsewhere_is_reached_with_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    server_cert, own = authority.issue_cert("localhost"), authority.issue_cert("client@example.com")
    credentials = grpc.ssl_server_credentials(
        [(server_cert.private_key_pem.bytes(), server_cert.cert_chain_pems[0].bytes())],
        root_certificates=authority.cert_pem.bytes(),
        require_client_auth=True,
    )
    server = GrpcServer(find_connector("sqlite"), "localhost:0", credentials)
    server.start()
    try:
        tls = ConnectorTls(
            authority.cert_pem.bytes(), own.cert_chain_pems[0].bytes(), own.private_key_pem.bytes()
        )
        # As a Spark task is sent it.
        settings = pickle.loads(
            pickle.dumps(
                replace(
                    settings_of(tmp_path, binding_of()),
                    connector_address=f"localhost:{server.port}",
                    connector_tls=tls,
                )
            )
        )
        far = plan(settings)
        assert isinstance(far.client, GrpcConnector)
        assert 'CREATE TABLE "main"."orders"' in apply(far)
        far.client.close()
        assert "PRIVATE KEY" not in repr(settings)
    finally:
        server.stop(0)


def test_a_connector_that_is_not_there(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, binding_of())
    with pytest.raises(ConfigError, match="there is no connector 'nosuch'; there are"):
        connector_client(replace(settings, connector="nosuch"))


@pytest.mark.parametrize(
    ("binding", "said"),
    [
        (binding_of(include=("nmae",)), "collection 'orders' has no field 'nmae'"),
        (binding_of(exclude=("id",)), "field 'id' of collection 'orders' cannot be excluded"),
        (BindingSettings(ORDERS, CollectionSource("orders"), {"tabel": "x"}), "resource: key 'table'"),
        (
            replace(
                binding_of(),
                collection=replace(ORDERS, schema={**ORDERS.schema, "reduce": {"strategy": "add"}}),
            ),
            "has strategy 'add'",
        ),
    ],
)
def test_what_is_wrong_names_the_materialization(tmp_path: Path, binding: BindingSettings, said: str) -> None:
    with pytest.raises((ConfigError, SchemaError)) as refused:
        plan(settings_of(tmp_path, binding))
    assert refused.value.message.startswith("materialization 'sales': ")
    assert said in refused.value.message


class Scripted:
    """A connector that answers what it is told to."""

    def __init__(self, validated: Validated | None = None, error: Exception | None = None) -> None:
        self.validated = validated
        self.error = error

    def spec(self, request: Spec) -> Specified:
        raise NotImplementedError

    def validate(self, request: Validate) -> Validated:
        if self.validated is None:
            return InProcess(find_connector("sqlite")).validate(request)
        return self.validated

    def apply(self, request: Apply) -> Applied:
        assert self.error is not None
        raise self.error

    def transactions(self) -> RuntimeStream:
        raise NotImplementedError


def plan_with(
    monkeypatch: pytest.MonkeyPatch, client: ConnectorClient, settings: MaterializationSettings
) -> Planned:
    monkeypatch.setattr("headrace.pipeline.plan.connector_client", lambda _: client)
    return plan(settings)


def test_a_connector_that_answers_for_too_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ProtocolError, match="Validated has 0 bindings, and 1 were asked about"):
        plan_with(monkeypatch, Scripted(Validated(())), settings_of(tmp_path, binding_of()))


def test_an_error_keeps_its_kind_and_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(tmp_path, binding_of())
    for error in (Fenced("taken", fence=7), EndpointUnavailable("away")):
        planned = plan_with(monkeypatch, Scripted(error=error), settings)
        with pytest.raises(type(error)) as raised:
            apply(planned)
        assert str(raised.value) == f"materialization 'sales': {error.message}"
        assert getattr(raised.value, "fence", 7) == 7
        assert raised.value.__cause__ is error
