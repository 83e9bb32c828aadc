"""The conformance suite on files: what a full view would hold is what a reader makes of the deltas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProtocolError
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Materialization
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import MAX_DOCUMENT_BYTES, Load, Request, Store, ValidateBinding
from headrace.testing import UncheckedStream, combine, samples
from headrace.testing.conformance import ConnectorConformance, EndpointUnderTest, order, views
from tests.connectors.files_endpoint import SettlingRuntime, in_bucket, in_folder


class TestFiles(ConnectorConformance):
    @pytest.fixture(autouse=True)
    def _settle(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(views, "Runtime", SettlingRuntime)
        monkeypatch.setattr(order, "Runtime", SettlingRuntime)

    @pytest.fixture(params=["folder", pytest.param("s3", marks=pytest.mark.processes)])
    def endpoint(self, request: pytest.FixtureRequest, tmp_path: Path) -> EndpointUnderTest:
        if request.param == "folder":
            return in_folder(tmp_path / "new folder")
        return in_bucket(request.getfixturevalue("s3_server"), request.getfixturevalue("s3_bucket"))

    def applied(
        self,
        endpoint: EndpointUnderTest,
        client: ConnectorClient,
        *bindings: ValidateBinding,
        include: Sequence[str] = (),
    ) -> Materialization:
        """With the document, which the reader reduces by."""
        return super().applied(endpoint, client, *bindings, include=[*include, DOCUMENT_FIELD])

    def test_every_type_is_stored_and_loaded(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(
            endpoint, client, self.binding(endpoint, samples.ALL_TYPES, delta_updates=True)
        )
        with SettlingRuntime(client, materialization) as runtime:
            runtime.transact([samples.ALL_TYPES_DOCUMENTS], {"n": 1})
        self.assert_holds(endpoint, materialization.bindings[0], samples.ALL_TYPES_DOCUMENTS)

    def test_every_type_of_key_finds_its_row_again(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        documents = samples.key_types_documents()
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.KEY_TYPES))
        with SettlingRuntime(client, materialization) as runtime:
            runtime.transact([documents], {"n": 1})
            runtime.transact([documents], {"n": 2})
        expected = list(combine(samples.KEY_TYPES, documents + documents).values())
        self.assert_holds(endpoint, materialization.bindings[0], expected)

    def test_the_largest_document(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.LAST_SEEN))
        room = MAX_DOCUMENT_BYTES - len('{"id":1,"place":""}')
        document: dict[str, Any] = {"id": 1, "place": "x" * room}
        with SettlingRuntime(client, materialization) as runtime:
            runtime.transact([[document]], {"n": 1})
        self.assert_holds(endpoint, materialization.bindings[0], [document])

    @pytest.mark.parametrize("last", ["Open", "Acknowledge", "Flush", "Store"])
    @pytest.mark.parametrize("how", ["broken", "ended"])
    def test_a_transaction_that_is_cut_off_leaves_nothing(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, last: str, how: str
    ) -> None:
        super().test_a_transaction_that_is_cut_off_leaves_nothing(endpoint, client, last, how)

    @pytest.mark.parametrize(
        "case", ["a load", "flushed twice", "stored before Flush", "a key stored twice", "committed twice"]
    )
    def test_a_runtime_that_breaks_the_order_is_refused_and_nothing_committed(  # type: ignore[override]
        self, endpoint: EndpointUnderTest, client: ConnectorClient, case: str
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        written = samples.orders(seed=1, count=20)
        opened, acknowledge, flush, store, commit = self.transaction(materialization, written, {"n": 1})
        assert isinstance(store, Store)
        bad: dict[str, list[Request]] = {
            "a load": [opened, acknowledge, Load(0, store.keys)],
            "flushed twice": [opened, acknowledge, flush, flush],
            "stored before Flush": [opened, acknowledge, store],
            "a key stored twice": [opened, acknowledge, flush, store, store],
            "committed twice": [opened, acknowledge, flush, store, commit, commit],
        }
        error = UncheckedStream(client.transactions()).error_after(bad[case])
        assert isinstance(error, ProtocolError)
        self.assert_holds(endpoint, materialization.bindings[0], [])

    def transaction(self, *arguments: Any) -> list[Request]:
        """Without a load, which delta updates have none of."""
        return [request for request in super().transaction(*arguments) if not isinstance(request, Load)]
