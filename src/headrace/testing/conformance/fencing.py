"""Tests the fence, and key ranges that split and join."""

from __future__ import annotations

import pytest

from headrace.errors import CheckpointConflict, Fenced
from headrace.model.checkpoints import START
from headrace.model.key_range import FULL_RANGE, KeyRange
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import (
    Apply,
)
from headrace.testing import samples
from headrace.testing.conformance.base import Conformance
from headrace.testing.endpoint import EndpointUnderTest
from headrace.testing.recovery_log import MemoryLog
from headrace.testing.runtime import Document, Runtime, combine, materialization_of

LOWER, UPPER = KeyRange(0, 0x7FFFFFFF), KeyRange(0x80000000, 0xFFFFFFFF)


class AuthoritativeConformance(Conformance):
    """Tests endpoints that keep the checkpoints and can be shared by key ranges."""

    def documents_by_range(self, count: int) -> tuple[list[Document], list[Document]]:
        written = samples.orders(seed=7, count=count)
        lower = [row for row in written if row["customer"] < "customer 4"]
        return lower, [row for row in written if row not in lower]

    def test_a_new_endpoint_starts_from_the_beginning(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        with Runtime(client, materialization) as runtime:
            assert runtime.checkpoint == START

    def test_the_endpoints_checkpoint_outranks_the_log(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        with Runtime(client, materialization, MemoryLog()) as runtime:
            runtime.transact([samples.orders(1, 5)], {"n": 1})
        with Runtime(client, materialization, MemoryLog()) as runtime:
            assert runtime.checkpoint == {"n": 1}

    def test_an_older_stream_cannot_commit(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        older, newer = samples.orders(1, 20), samples.orders(2, 20)
        zombie = Runtime(client, materialization)
        zombie.open()
        with Runtime(client, materialization) as runtime:
            runtime.transact([newer], {"n": "newer"})
        with pytest.raises(Fenced) as fenced:
            zombie.transact([older], {"n": "older"})
        assert fenced.value.taken_by
        assert fenced.value.materialization == "view"
        self.assert_holds(
            endpoint, materialization.bindings[0], list(combine(samples.ORDERS, newer).values())
        )
        with Runtime(client, materialization) as runtime:
            assert runtime.checkpoint == {"n": "newer"}

    @pytest.mark.parametrize("taken", [LOWER, KeyRange(0x7FFFFFFF, 0x80000000), KeyRange(5, 5), FULL_RANGE])
    def test_any_overlap_fences(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, taken: KeyRange
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        zombie = Runtime(client, materialization)
        zombie.open()
        with Runtime(client, materialization, key_range=taken):
            pass
        with pytest.raises(Fenced, match="00000000-ffffffff"):
            zombie.transact([samples.orders(1, 5)], {"n": 1})
        self.assert_holds(endpoint, materialization.bindings[0], [])

    def test_ranges_side_by_side_do_not_fence_each_other(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        lower, upper = self.documents_by_range(60)
        with (
            Runtime(client, materialization, key_range=LOWER) as one,
            Runtime(client, materialization, key_range=UPPER) as other,
        ):
            for number in (0, 30):
                one.transact([lower[number : number + 30]], {"n": number})
                other.transact([upper[number : number + 30]], {"n": number})
        expected = list(combine(samples.ORDERS, lower + upper).values())
        self.assert_holds(endpoint, materialization.bindings[0], expected)

    def test_materializations_do_not_fence_each_other(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        one = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        other = materialization_of(
            client,
            "another view",
            endpoint.endpoint_type,
            endpoint.config,
            [self.binding(endpoint, samples.LAST_SEEN)],
        )
        client.apply(Apply(other, "1"))
        with Runtime(client, one) as first, Runtime(client, other) as second:
            second.transact([[{"id": 1}]], {"n": 1})
            first.transact([samples.orders(1, 5)], {"n": 1})

    def test_ranges_split_and_join_with_their_checkpoint(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        lower, upper = self.documents_by_range(90)
        with Runtime(client, materialization) as runtime:
            runtime.transact([lower[:10] + upper[:10]], {"n": 1})
        for key_range, part in ((LOWER, lower), (UPPER, upper)):
            with Runtime(client, materialization, key_range=key_range) as runtime:
                assert runtime.checkpoint == {"n": 1}
                runtime.transact([part[10:20]], {"n": 2})
        with Runtime(client, materialization) as runtime:  # the row of this range is there, and stale
            assert runtime.checkpoint == {"n": 2}
            runtime.transact([lower[20:] + upper[20:]], {"n": 3})
        with Runtime(client, materialization, key_range=UPPER) as runtime:
            assert runtime.checkpoint == {"n": 3}
        expected = list(combine(samples.ORDERS, lower + upper).values())
        self.assert_holds(endpoint, materialization.bindings[0], expected)

    def test_ranges_that_stand_apart_cannot_join(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        materialization = self.applied(endpoint, client, self.binding(endpoint, samples.ORDERS))
        lower, upper = self.documents_by_range(40)
        with Runtime(client, materialization, key_range=LOWER) as runtime:
            runtime.transact([lower], {"n": 1})
        with (
            pytest.raises(CheckpointConflict, match="00000000-7fffffff and 80000000-ffffffff"),
            Runtime(client, materialization),
        ):
            pass
        with Runtime(client, materialization, key_range=UPPER) as runtime:
            assert runtime.checkpoint == START
            runtime.transact([upper], {"n": 1})
        with Runtime(client, materialization) as runtime:
            assert runtime.checkpoint == {"n": 1}
        expected = list(combine(samples.ORDERS, lower + upper).values())
        self.assert_holds(endpoint, materialization.bindings[0], expected)
