"""Tests what is stored, loaded and reduced."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import HeadraceError, ProtocolError
from headrace.model.collections import DOCUMENT_FIELD
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import (
    MAX_DOCUMENT_BYTES,
    Apply,
    ConstraintKind,
    Spec,
    Validate,
)
from headrace.testing import samples
from headrace.testing.conformance.base import Conformance
from headrace.testing.endpoint import EndpointUnderTest
from headrace.testing.recovery_log import MemoryLog
from headrace.testing.runtime import Document, Runtime, combine, materialization_of


class ViewConformance(Conformance):
    """Tests configuration, types, and the contents of views after transactions."""

    def test_spec_says_what_to_configure(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        answer = client.spec(Spec())
        assert answer.endpoint_schema["type"] == "object"
        assert set(endpoint.config) <= set(answer.endpoint_schema["properties"])
        assert set(endpoint.resource("x")) <= set(answer.resource_schema["properties"])
        assert answer.documentation_url.startswith("https://")

    def test_validate_answers_for_every_field_with_a_reason(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        bindings = (self.binding(endpoint, samples.ORDERS), self.binding(endpoint, samples.ALL_TYPES))
        answer = client.validate(Validate("view", endpoint.endpoint_type, endpoint.config, bindings))
        assert len(answer.bindings) == 2
        for binding, validated in zip(bindings, answer.bindings, strict=True):
            for field in binding.fields:
                constraint = validated.constraints[field.name]
                assert constraint.reason
                is_key = field in binding.collection.key_fields
                assert (constraint.kind is ConstraintKind.REQUIRED) == is_key
            assert validated.resource_path

    def test_apply_is_told_apart_from_its_dry_run_and_is_done_once(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = materialization_of(
            client, "view", endpoint.endpoint_type, endpoint.config, [self.binding(endpoint, samples.ORDERS)]
        )
        planned = client.apply(Apply(materialization, "1", dry_run=True)).action_description
        assert planned
        assert client.apply(Apply(materialization, "1", dry_run=True)).action_description == planned
        assert client.apply(Apply(materialization, "1")).action_description == planned
        assert client.apply(Apply(materialization, "1")).action_description == ""

    def test_opening_what_was_not_applied_is_refused(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = materialization_of(
            client, "view", endpoint.endpoint_type, endpoint.config, [self.binding(endpoint, samples.ORDERS)]
        )
        with pytest.raises(HeadraceError, match="apply"), Runtime(client, materialization):
            pass

    def test_every_type_is_stored_and_loaded(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        binding = self.binding(endpoint, samples.ALL_TYPES)
        materialization = self.applied(endpoint, client, binding, include=["object", "array"])
        with Runtime(client, materialization) as runtime:
            runtime.transact([samples.ALL_TYPES_DOCUMENTS], {"n": 1}, always_load=True)
            self.assert_holds(endpoint, materialization.bindings[0], samples.ALL_TYPES_DOCUMENTS)
            again = runtime.transact([samples.ALL_TYPES_DOCUMENTS], {"n": 2}, always_load=True)
        assert again.loaded == len(samples.ALL_TYPES_DOCUMENTS)
        self.assert_holds(endpoint, materialization.bindings[0], samples.ALL_TYPES_DOCUMENTS)

    def test_every_type_of_key_finds_its_row_again(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        documents = samples.key_types_documents()
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.KEY_TYPES))
        with Runtime(client, materialization) as runtime:
            runtime.transact([documents], {"n": 1})
            again = runtime.transact([documents], {"n": 2})
        assert again.loaded == len(documents)
        expected = list(combine(samples.KEY_TYPES, documents + documents).values())
        self.assert_holds(endpoint, materialization.bindings[0], expected)

    def test_names_are_quoted(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        collection = samples.AWKWARD_NAMES
        materialization = self.applied(
            endpoint, client, self.binding(endpoint, collection, name='order"s; --'), include=["nested"]
        )
        values = {name: f"value of {name}" for name in collection.schema["properties"]}
        documents: list[dict[str, Any]] = [
            {**values, "select": number, "nested": {"key": "k"}} for number in range(3)
        ]
        with Runtime(client, materialization) as runtime:
            runtime.transact([documents], {"n": 1})
            runtime.transact([documents], {"n": 2}, always_load=True)
        self.assert_holds(endpoint, materialization.bindings[0], documents)

    def test_transactions_reduce_into_a_full_view(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(
            endpoint, client, self.binding(endpoint, samples.ORDERS), include=["lines"]
        )
        written: list[Document] = []
        with Runtime(client, materialization, rows_per_message=5) as runtime:
            for number in range(6):
                batch = samples.orders(seed=number, count=20 * number)  # the first is empty
                written += batch
                runtime.transact([batch], {"n": number})
                expected = list(combine(samples.ORDERS, written).values())
                self.assert_holds(endpoint, materialization.bindings[0], expected)

    def test_delta_updates_append_each_transactions_roll_up(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(
            endpoint,
            client,
            self.binding(endpoint, samples.ORDERS, delta_updates=True),
            include=[DOCUMENT_FIELD],
        )
        assert materialization.bindings[0].delta_updates
        assert materialization.bindings[0].document == DOCUMENT_FIELD
        deltas: list[Document] = []
        with Runtime(client, materialization, rows_per_message=5) as runtime:
            for number in range(3):
                batch = samples.orders(seed=number, count=30)
                deltas += combine(samples.ORDERS, batch).values()
                runtime.transact([batch], {"n": number})
        self.assert_holds(endpoint, materialization.bindings[0], deltas)

    def test_bindings_share_a_transaction(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        materialization = self.applied(
            endpoint,
            client,
            self.binding(endpoint, samples.ORDERS),
            self.binding(endpoint, samples.LAST_SEEN),
            self.binding(endpoint, samples.ORDERS, name="order deltas", delta_updates=True),
        )
        orders = samples.orders(seed=1, count=50)
        seen = [{"id": number % 7, "place": f"place {number}"} for number in range(50)]
        with Runtime(client, materialization) as runtime:
            runtime.transact([orders[:25], seen[:25], orders[:25]], {"n": 1})
            runtime.transact([orders[25:], seen[25:], orders[25:]], {"n": 2})
        full, last, deltas = materialization.bindings
        self.assert_holds(endpoint, full, list(combine(samples.ORDERS, orders).values()))
        self.assert_holds(endpoint, last, list(combine(samples.LAST_SEEN, seen).values()))
        halves = [combine(samples.ORDERS, half).values() for half in (orders[:25], orders[25:])]
        self.assert_holds(endpoint, deltas, [document for half in halves for document in half])

    def test_a_row_that_is_there_is_updated_though_it_was_not_loaded(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.LAST_SEEN))
        with Runtime(client, materialization) as runtime:
            runtime.transact([[{"id": 1, "place": "old"}]], {"n": 1})
            done = runtime.transact([[{"id": 1, "place": "new"}, {"id": 2}]], {"n": 2})
        assert done.loaded == 0
        self.assert_holds(endpoint, materialization.bindings[0], [{"id": 1, "place": "new"}, {"id": 2}])

    def test_the_largest_document(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.LAST_SEEN))
        room = MAX_DOCUMENT_BYTES - len('{"id":1,"place":""}')
        document: dict[str, Any] = {"id": 1, "place": "x" * room}
        with Runtime(client, materialization) as runtime:
            runtime.transact([[document]], {"n": 1})
            done = runtime.transact([[document, {"id": 2, "place": "small"}]], {"n": 2}, always_load=True)
            assert done.loaded == 1
        self.assert_holds(endpoint, materialization.bindings[0], [document, {"id": 2, "place": "small"}])
        document["place"] += "x"
        too_long = pytest.raises(ProtocolError, match=f"at most {MAX_DOCUMENT_BYTES} bytes")
        with too_long, Runtime(client, materialization) as runtime:
            runtime.transact([[document]], {"n": 3})

    def test_a_new_stream_goes_on_where_the_last_one_ended(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        log = MemoryLog()
        written = samples.orders(seed=3, count=60)
        for end in (20, 40, 60):
            with Runtime(client, materialization, log) as runtime:
                begin = runtime.checkpoint.get("end", 0)
                assert begin == end - 20
                runtime.transact([written[begin:end]], {"end": end})
        self.assert_holds(
            endpoint, materialization.bindings[0], list(combine(samples.ORDERS, written).values())
        )
