"""Shared code of the suites: an endpoint, a client for each transport, and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from headrace.model.collections import Collection
from headrace.model.columns import extract
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.grpc import GrpcConnector, GrpcServer
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import (
    Apply,
    ValidateBinding,
)
from headrace.testing.endpoint import EndpointUnderTest
from headrace.testing.runtime import Document, materialization_of


class Conformance:
    """Base of the suites; each test runs in process and over gRPC."""

    @pytest.fixture
    def endpoint(self) -> EndpointUnderTest:
        raise NotImplementedError("override this fixture with the endpoint that is tested")

    @pytest.fixture(params=["in process", "grpc"])
    def client(
        self, request: pytest.FixtureRequest, endpoint: EndpointUnderTest
    ) -> Iterator[ConnectorClient]:
        if request.param == "in process":
            yield InProcess(endpoint.connector)
            return
        with (
            GrpcServer(endpoint.connector, "127.0.0.1:0") as server,
            GrpcConnector(f"127.0.0.1:{server.port}") as client,
        ):
            yield client

    def binding(
        self, endpoint: EndpointUnderTest, collection: Collection, name: str = "", delta_updates: bool = False
    ) -> ValidateBinding:
        return ValidateBinding(collection, endpoint.resource(name or collection.name, delta_updates))

    def applied(
        self,
        endpoint: EndpointUnderTest,
        client: ConnectorClient,
        *bindings: ValidateBinding,
        include: Sequence[str] = (),
    ) -> Materialization:
        materialization = materialization_of(
            client, "view", endpoint.endpoint_type, endpoint.config, bindings, include
        )
        client.apply(Apply(materialization, "1"))
        return materialization

    def assert_holds(
        self, endpoint: EndpointUnderTest, binding: Binding, documents: Sequence[Document]
    ) -> None:
        """Asserts that the endpoint contains exactly these documents and their fields, in any order."""
        fields = (*binding.keys, *binding.values)
        expected = []
        for document in documents:
            row = extract(fields, [document]).to_pylist()[0]
            for field in binding.values:
                if field.type.kind is Kind.JSON:
                    row[field.name] = document.get(field.name)
            if binding.document:
                row[binding.document] = document
            expected.append(row)
        actual = endpoint.rows(binding)
        assert sorted(actual, key=repr) == sorted(expected, key=repr)
