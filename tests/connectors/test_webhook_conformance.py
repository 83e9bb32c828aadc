"""What the conformance suite asks, of an endpoint that takes delta updates and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.model.columns import extract
from headrace.model.key_range import FULL_RANGE
from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import (
    MAX_DOCUMENT_BYTES,
    Acknowledge,
    Apply,
    Flush,
    Load,
    Open,
    Request,
    StartCommit,
    Store,
    Validate,
)
from headrace.testing import MemoryLog, Runtime, UncheckedStream, combine, materialization_of, samples
from headrace.testing.conformance import Conformance, EndpointUnderTest
from headrace.testing.conformance.views import ViewConformance
from headrace.testing.runtime import Document
from tests.connectors.webhook_endpoint import Receiver, WebhookEndpointUnderTest


class TestWebhook(Conformance):
    test_spec = ViewConformance.test_spec_says_what_to_configure
    test_validate = ViewConformance.test_validate_answers_for_every_field_with_a_reason
    test_deltas = ViewConformance.test_delta_updates_append_each_transactions_roll_up

    @pytest.fixture
    def endpoint(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[EndpointUnderTest]:
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        with Receiver() as receiver:
            yield WebhookEndpointUnderTest(receiver)

    def test_there_is_nothing_to_apply(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        for dry_run in (True, False):
            assert client.apply(Apply(materialization, "1", dry_run)).action_description == ""

    def test_nobody_can_tell_whose_an_address_is(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        binding = self.binding(endpoint, samples.ORDERS)
        for name in ("view", "other"):
            validated = client.validate(Validate(name, endpoint.endpoint_type, endpoint.config, (binding,)))
            assert validated.bindings[0].target is None
            view = materialization_of(client, name, endpoint.endpoint_type, endpoint.config, [binding])
            assert client.apply(Apply(view, "1", lineage="first")).action_description == ""

    def test_every_type_is_sent(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ALL_TYPES))
        with Runtime(client, materialization) as runtime:
            runtime.transact([samples.ALL_TYPES_DOCUMENTS], {"n": 1})
        self.assert_holds(endpoint, materialization.bindings[0], samples.ALL_TYPES_DOCUMENTS)

    def test_every_type_of_key(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        documents = samples.key_types_documents()
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.KEY_TYPES))
        with Runtime(client, materialization, rows_per_message=7) as runtime:
            for number in (1, 2):
                runtime.transact([documents], {"n": number})
        self.assert_holds(endpoint, materialization.bindings[0], documents + documents)

    def test_any_name_can_be_a_path(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        name = 'order"s; 100% \u2603/--'
        binding = self.binding(endpoint, samples.AWKWARD_NAMES, name=name)
        materialization = self.applied(endpoint, client, binding)
        document = {"select": 1, "nested": {"key": "k"}, "%s": "x"}
        with Runtime(client, materialization) as runtime:
            runtime.transact([[document]], {"n": 1})
        self.assert_holds(endpoint, materialization.bindings[0], [document])

    def test_bindings_share_a_transaction(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        materialization = self.applied(
            endpoint,
            client,
            self.binding(endpoint, samples.ORDERS),
            self.binding(endpoint, samples.LAST_SEEN),
        )
        orders = samples.orders(seed=1, count=50)
        seen = [{"id": number % 7, "place": f"place {number}"} for number in range(50)]
        halves = ((orders[:25], seen[:25]), (orders[25:], seen[25:]))
        with Runtime(client, materialization, rows_per_message=3) as runtime:
            for number, half in enumerate(halves):
                runtime.transact(half, {"n": number})
        for index, collection in enumerate((samples.ORDERS, samples.LAST_SEEN)):
            deltas = [row for half in halves for row in combine(collection, half[index]).values()]
            self.assert_holds(endpoint, materialization.bindings[index], deltas)

    def test_the_largest_document(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.LAST_SEEN))
        largest = {"id": 1, "place": "x" * (MAX_DOCUMENT_BYTES - len('{"id":1,"place":""}'))}
        with Runtime(client, materialization) as runtime:
            runtime.transact([[largest, {"id": 2, "place": "small"}]], {"n": 1})
        self.assert_holds(endpoint, materialization.bindings[0], [largest, {"id": 2, "place": "small"}])

    def test_a_new_stream_goes_on_where_the_last_one_ended(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.LAST_SEEN))
        log = MemoryLog()
        for number in (1, 2, 3):
            with Runtime(client, materialization, log) as runtime:
                assert runtime.checkpoint.get("n", 0) == number - 1
                runtime.transact([[{"id": 1}]], {"n": number})
        self.assert_holds(endpoint, materialization.bindings[0], [{"id": 1}] * 3)

    @pytest.mark.parametrize("last", ["Open", "Acknowledge", "Flush", "Store"])
    @pytest.mark.parametrize("how", ["broken", "ended"])
    def test_a_transaction_that_is_cut_off_sends_nothing(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, last: str, how: str
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        stream = UncheckedStream(client.transactions())
        requests = self.transaction(materialization, samples.orders(seed=2, count=20), {"n": 2})
        cut = requests[: [type(request).__name__ for request in requests].index(last) + 1]
        if how == "ended":
            error = stream.error_after(cut)
            assert isinstance(error, ProtocolError) == (last not in ("Open", "Acknowledge"))
        else:
            for request in cut:
                stream.send(request)
            stream.abandon()
        self.assert_holds(endpoint, materialization.bindings[0], [])

    @pytest.mark.parametrize(
        ("case", "message"),
        [
            ("nothing opened", "Acknowledge"),
            ("opened twice", "Open"),
            ("loaded", "Load"),
            ("flushed twice", "Flush"),
            ("stored before Flush", "Store"),
            ("a key stored twice", "Store"),
            ("an unknown binding", "Store"),
            ("committed before Flush", "StartCommit"),
            ("committed twice", "StartCommit"),
            ("acknowledged in the middle", "Acknowledge"),
        ],
    )
    def test_a_runtime_that_breaks_the_order_is_refused_and_nothing_sent(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, case: str, message: str
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        written = samples.orders(seed=1, count=20)
        opened, acknowledge, flush, store, commit = self.transaction(materialization, written, {"n": 1})
        assert isinstance(store, Store)
        elsewhere = Store(1, store.keys, store.values, store.documents, store.exists)
        bad: dict[str, list[Request]] = {
            "nothing opened": [acknowledge],
            "opened twice": [opened, opened],
            "loaded": [opened, acknowledge, Load(0, store.keys)],
            "flushed twice": [opened, acknowledge, flush, flush],
            "stored before Flush": [opened, acknowledge, store],
            "a key stored twice": [opened, acknowledge, flush, store, store],
            "an unknown binding": [opened, acknowledge, flush, elsewhere],
            "committed before Flush": [opened, acknowledge, commit],
            "committed twice": [opened, acknowledge, flush, store, commit, commit],
            "acknowledged in the middle": [opened, acknowledge, flush, store, acknowledge, commit],
        }
        error = UncheckedStream(client.transactions()).error_after(bad[case])
        assert isinstance(error, ProtocolError)
        assert message in str(error)
        sent = list(combine(samples.ORDERS, written).values()) if case == "committed twice" else []
        self.assert_holds(endpoint, materialization.bindings[0], sent)

    def transaction(
        self, materialization: Materialization, documents: list[Document], checkpoint: dict[str, Any]
    ) -> list[Request]:
        """The requests of a stream of one transaction into the first binding."""
        binding = materialization.bindings[0]
        rows = list(combine(binding.collection, documents).values())
        texts = pa.array([orjson.dumps(row).decode() for row in rows], type=pa.string())
        keys, values = extract(binding.keys, rows), extract(binding.values, rows)
        return [
            Open(materialization, "1", FULL_RANGE),
            Acknowledge(),
            Flush(),
            Store(0, keys, values, texts, pa.array([False] * len(rows))),
            StartCommit(checkpoint),
        ]
