"""Tests ownership of targets: what Validate reports, and whom Apply refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.errors import EndpointError, HeadraceError
from headrace.model.collections import DOCUMENT_FIELD, Collection
from headrace.model.materializations import Materialization
from headrace.model.ownership import Mode, Owner, Target
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import Apply, Validate, ValidateBinding
from headrace.testing import samples
from headrace.testing.conformance.base import Conformance
from headrace.testing.endpoint import EndpointUnderTest
from headrace.testing.runtime import Runtime, materialization_of


class OwnershipConformance(Conformance):
    """Tests connectors that report targets in Validated (`ValidatedBinding.target`); others skip these
    tests."""

    def test_a_target_says_whose_it_is(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        bindings = (
            self.binding(endpoint, samples.ORDERS),
            self.binding(endpoint, samples.LAST_SEEN, delta_updates=True),
        )
        assert self.targets(endpoint, client, *bindings) == [Target(exists=False)] * 2
        view = self.planned(endpoint, client, "view", *bindings)
        owners = [
            Owner("view", "first", ("customer", "day"), _mode(view)),
            Owner("view", "first", ("id",), Mode.APPEND),
        ]

        planned = client.apply(Apply(view, "1", dry_run=True, lineage="first")).action_description
        assert planned != client.apply(Apply(view, "1", dry_run=True)).action_description
        assert self.targets(endpoint, client, *bindings) == [Target(exists=False)] * 2
        assert client.apply(Apply(view, "1", lineage="first")).action_description == planned
        told = [Target(exists=True, has_rows=False, owner=owner) for owner in owners]
        assert self.targets(endpoint, client, *bindings) == told

        assert client.apply(Apply(view, "1", lineage="first")).action_description == ""
        assert client.apply(Apply(view, "1")).action_description == ""
        assert self.targets(endpoint, client, *bindings) == told

        with Runtime(client, view) as runtime:
            runtime.transact([samples.orders(1, 5), []], {"n": 1})
        held = self.held(endpoint, view)
        told = [
            Target(exists=True, has_rows=has_rows, owner=owner)
            for has_rows, owner in zip((True, False), owners, strict=True)
        ]
        assert self.targets(endpoint, client, *bindings) == told
        assert self.held(endpoint, view) == held

    def test_what_nobody_has_claimed_is_claimed_by_the_next(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        binding = self.binding(endpoint, samples.ORDERS)
        self.targets(endpoint, client, binding)
        view = self.planned(endpoint, client, "view", binding)
        client.apply(Apply(view, "1"))
        with Runtime(client, view) as runtime:
            runtime.transact([samples.orders(1, 5)], {"n": 1})
        assert self.targets(endpoint, client, binding) == [Target(exists=True, has_rows=True)]
        for lineage in ("first", "second"):
            assert client.apply(Apply(view, "1", lineage=lineage)).action_description
            owner = Owner("view", lineage, ("customer", "day"), _mode(view))
            assert self.targets(endpoint, client, binding) == [Target(True, True, owner)]

    def test_a_target_of_somebody_else_is_refused_until_it_is_taken_over(
        self, endpoint: EndpointUnderTest, client: ConnectorClient
    ) -> None:
        binding, fresh = self.binding(endpoint, samples.ORDERS), self.binding(endpoint, samples.LAST_SEEN)
        self.targets(endpoint, client, binding)
        view = self.planned(endpoint, client, "view", binding)
        client.apply(Apply(view, "1", lineage="first"))
        with Runtime(client, view) as runtime:
            runtime.transact([samples.orders(1, 5)], {"n": 1})
        mine = Owner("view", "first", ("customer", "day"), _mode(view))
        told, held = [Target(exists=True, has_rows=True, owner=mine)], self.held(endpoint, view)

        other = self.planned(endpoint, client, "other", fresh, binding)
        for request in (
            Apply(other, "1", lineage="second"),
            Apply(other, "1"),
            Apply(other, "1", dry_run=True, lineage="second"),
        ):
            with pytest.raises(EndpointError, match="is written by materialization 'view'"):
                client.apply(request)
            assert self.targets(endpoint, client, fresh, binding) == [Target(exists=False), *told]
        assert self.held(endpoint, view) == held
        assert client.apply(Apply(view, "1", lineage="first")).action_description == ""

        adopts = Apply(other, "1", dry_run=True, lineage="second", adopts=True)
        planned = client.apply(adopts).action_description
        assert self.targets(endpoint, client, fresh, binding) == [Target(exists=False), *told]
        adopts = Apply(other, "1", lineage="second", adopts=True)
        assert client.apply(adopts).action_description == planned
        theirs = Owner("other", "second", ("customer", "day"), _mode(view))
        assert self.targets(endpoint, client, binding) == [Target(True, True, theirs)]
        assert self.held(endpoint, view) == held
        with pytest.raises(EndpointError, match="is written by materialization 'other'"):
            client.apply(Apply(view, "1", lineage="first"))

    def test_another_key_is_refused(self, endpoint: EndpointUnderTest, client: ConnectorClient) -> None:
        binding = self.binding(endpoint, samples.ORDERS, delta_updates=True)
        self.targets(endpoint, client, binding)
        client.apply(Apply(self.planned(endpoint, client, "view", binding), "1", lineage="first"))
        told = self.targets(endpoint, client, binding)
        collection = Collection(samples.ORDERS.name, ("/customer",), samples.ORDERS.schema)
        by_customer = self.binding(endpoint, collection, delta_updates=True)
        with pytest.raises(HeadraceError, match=r"key.*customer"):  # by Validate, if it looks at keys
            client.apply(Apply(self.planned(endpoint, client, "view", by_customer), "1", lineage="first"))
        assert self.targets(endpoint, client, binding) == told

    def planned(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, name: str, *bindings: ValidateBinding
    ) -> Materialization:
        include = [DOCUMENT_FIELD]  # which some endpoints hold views by
        return materialization_of(
            client, name, endpoint.endpoint_type, endpoint.config, list(bindings), include
        )

    def targets(
        self, endpoint: EndpointUnderTest, client: ConnectorClient, *bindings: ValidateBinding
    ) -> Sequence[Target]:
        """Returns what Validate reports to materialization 'view'; skips the test if it reports nothing."""
        asked = Validate("view", endpoint.endpoint_type, endpoint.config, bindings)
        told = [validated.target for validated in client.validate(asked).bindings]
        found = [target for target in told if target is not None]
        if len(found) < len(told):
            pytest.skip("the connector does not say whose a target is")
        return found

    def held(self, endpoint: EndpointUnderTest, materialization: Materialization) -> list[dict[str, Any]]:
        return sorted(endpoint.rows(materialization.bindings[0]), key=repr)


def _mode(materialization: Materialization) -> Mode:
    """Returns the mode of the first binding, for which some endpoints always use delta updates."""
    return Mode.APPEND if materialization.bindings[0].delta_updates else Mode.VIEW
