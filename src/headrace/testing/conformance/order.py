"""Tests how a connector reacts to a runtime that goes away, or that violates the order."""

from __future__ import annotations

from collections.abc import Sequence
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
    Acknowledge,
    Flush,
    Load,
    Open,
    Request,
    StartCommit,
    Store,
)
from headrace.testing import samples
from headrace.testing.by_hand import UncheckedStream
from headrace.testing.conformance.base import Conformance
from headrace.testing.endpoint import EndpointUnderTest
from headrace.testing.runtime import Document, Runtime, combine


class OrderConformance(Conformance):
    """A transaction that is not completed according to the protocol leaves nothing behind."""

    @pytest.mark.parametrize("last", ["Open", "Acknowledge", "Load", "Flush", "Store"])
    @pytest.mark.parametrize("how", ["broken", "ended"])
    def test_a_transaction_that_is_cut_off_leaves_nothing(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, last: str, how: str
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        first, second = samples.orders(seed=1, count=20), samples.orders(seed=2, count=20)
        with Runtime(client, materialization) as runtime:
            runtime.transact([first], {"n": 1})
        stream = UncheckedStream(client.transactions())
        requests = self.transaction(materialization, second, {"n": 2})
        cut = requests[: [type(request).__name__ for request in requests].index(last) + 1]
        if how == "ended":
            error = stream.error_after(cut)
            assert isinstance(error, ProtocolError) == (last not in ("Open", "Acknowledge"))
        else:
            for request in cut:
                stream.send(request)
            stream.abandon()
        self.assert_holds(
            endpoint, materialization.bindings[0], list(combine(samples.ORDERS, first).values())
        )
        if endpoint.keeps_checkpoints:
            with Runtime(client, materialization) as runtime:
                assert runtime.checkpoint == {"n": 1}

    @pytest.mark.parametrize(
        ("case", "message"),
        [
            ("nothing opened", "Acknowledge"),
            ("opened twice", "Open"),
            ("loaded before Acknowledge", "Load"),
            ("a key loaded twice in a message", "Load"),
            ("a key loaded twice in a transaction", "Load"),
            ("loaded for delta updates", "Load"),
            ("loaded after Flush", "Load"),
            ("flushed twice", "Flush"),
            ("stored before Flush", "Store"),
            ("a key stored twice", "Store"),
            ("an unknown binding", "Store"),
            ("a null key", "Load"),
            ("other columns", "Load"),
            ("committed before Flush", "StartCommit"),
            ("committed twice", "StartCommit"),
            ("acknowledged in the middle", "Acknowledge"),
        ],
    )
    def test_a_runtime_that_breaks_the_order_is_refused_and_nothing_committed(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, case: str, message: str
    ) -> None:
        materialization = self.applied(
            endpoint,
            client,
            self.binding(endpoint, samples.ORDERS),
            self.binding(endpoint, samples.ORDERS, name="deltas", delta_updates=True),
        )
        written = samples.orders(seed=1, count=20)
        opened, acknowledge, load, flush, store, commit = self.transaction(materialization, written, {"n": 1})
        assert isinstance(load, Load)
        assert isinstance(store, Store)
        keys = load.keys
        bad: dict[str, list[Request]] = {
            "nothing opened": [acknowledge],
            "opened twice": [opened, opened],
            "loaded before Acknowledge": [opened, load],
            "a key loaded twice in a message": [opened, acknowledge, Load(0, _twice(keys))],
            "a key loaded twice in a transaction": [opened, acknowledge, load, Load(0, keys.slice(3, 1))],
            "loaded for delta updates": [opened, acknowledge, Load(1, keys)],
            "loaded after Flush": [opened, acknowledge, flush, load],
            "flushed twice": [opened, acknowledge, load, flush, flush],
            "stored before Flush": [opened, acknowledge, load, store],
            "a key stored twice": [opened, acknowledge, load, flush, store, store],
            "an unknown binding": [opened, acknowledge, flush, _rebind(store, 2)],
            "a null key": [opened, acknowledge, Load(0, _with_null(keys))],
            "other columns": [opened, acknowledge, Load(0, keys.select([1, 0]))],
            "committed before Flush": [opened, acknowledge, load, commit],
            "committed twice": [opened, acknowledge, load, flush, store, commit, commit],
            "acknowledged in the middle": [opened, acknowledge, load, flush, store, acknowledge, commit],
        }
        error = UncheckedStream(client.transactions()).error_after(bad[case])
        assert error is not None
        assert message in str(error) or "row 0" in str(error)  # or the tuple itself does not read
        committed = case == "committed twice"
        expected = list(combine(samples.ORDERS, written).values()) if committed else []
        self.assert_holds(endpoint, materialization.bindings[0], expected)
        self.assert_holds(endpoint, materialization.bindings[1], [])

    def transaction(
        self, materialization: Materialization, documents: Sequence[Document], checkpoint: dict[str, Any]
    ) -> list[Request]:
        """Returns the requests of a stream with one transaction into the first binding, as if no row
        existed."""
        binding = materialization.bindings[0]
        rows = list(combine(binding.collection, documents).values())
        keys = extract(binding.keys, rows)
        texts = pa.array([orjson.dumps(row).decode() for row in rows], type=pa.string())
        exists = pa.array([False] * len(rows))
        return [
            Open(materialization, "1", FULL_RANGE),
            Acknowledge(),
            Load(0, keys),
            Flush(),
            Store(0, keys, extract(binding.values, rows), texts, exists),
            StartCommit(checkpoint),
        ]


def _twice(keys: pa.RecordBatch) -> pa.RecordBatch:
    return pa.Table.from_batches([keys, keys]).combine_chunks().to_batches()[0]


def _rebind(store: Store, binding: int) -> Store:
    return Store(binding, store.keys, store.values, store.documents, store.exists)


def _with_null(keys: pa.RecordBatch) -> pa.RecordBatch:
    nothing = pa.nulls(len(keys), keys.schema.field(0).type)
    return pa.RecordBatch.from_arrays([nothing, *keys.columns[1:]], schema=keys.schema)
