"""Connections to connectors are ended when they are not needed any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.connectors.registry import find_connector
from headrace.model.collections import Collection
from headrace.pipeline.plan import connected, plan
from headrace.pipeline.settings import BindingSettings, CollectionSource, MaterializationSettings
from headrace.protocol.grpc import GrpcServer
from headrace.protocol.messages import Spec


def test_connections_are_closed(tmp_path: Path) -> None:
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    binding = BindingSettings(
        Collection("orders", ("/id",), schema), CollectionSource("orders"), {"table": "orders"}
    )
    server = GrpcServer(find_connector("sqlite"), "127.0.0.1:0")
    server.start()
    try:
        settings = MaterializationSettings(
            "sales",
            "sqlite",
            {"path": str(tmp_path / "sales.db")},
            (binding,),
            connector_address=f"127.0.0.1:{server.port}",
        )
        with connected(settings) as client:
            client.spec(Spec())
        planned = plan(settings)
        planned.close()
        assert planned.client is not None
        for used in (client, planned.client):
            with pytest.raises(ValueError, match="closed channel"):
                used.spec(Spec())
    finally:
        server.stop()
