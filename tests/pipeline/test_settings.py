"""The digest of what makes an epoch's content: it changes with all that could change a row."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from headrace.model.collections import Collection
from headrace.model.materializations import Binding, Materialization
from headrace.pipeline.settings import (
    Action,
    BindingSettings,
    CollectionSource,
    FormatSource,
    MaterializationSettings,
    Rule,
    definition_digest,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "reduce": {"strategy": "merge"},
    "properties": {"id": {"type": "integer"}, "sum": {"type": "integer", "reduce": {"strategy": "sum"}}},
}
ORDERS = Collection("orders", ("/id",), SCHEMA)
RULE = Rule("early", field="day", maximum=date(2026, 1, 1))
BINDING = BindingSettings(ORDERS, CollectionSource("orders"), {"table": "orders"}, rules=(RULE,))
CHOSEN = Binding(ORDERS, {"table": "orders"}, ("orders",), ORDERS.fields[1:])


def digest(settings: BindingSettings = BINDING, chosen: Binding = CHOSEN, **changes: Any) -> str:
    one = replace(MaterializationSettings("sales", "sqlite", {}, (settings,)), **changes)
    return definition_digest(one, Materialization("sales", "sqlite", {}, (chosen,)))


def with_schema(**changes: Any) -> BindingSettings:
    return replace(BINDING, collection=Collection("orders", ("/id",), {**SCHEMA, **changes}))


@pytest.mark.parametrize(
    "changed",
    [
        digest(replace(BINDING, rules=())),
        digest(replace(BINDING, rules=(replace(RULE, action=Action.WARN),))),
        digest(replace(BINDING, rules=(replace(RULE, maximum=date(2026, 1, 2)),))),
        digest(replace(BINDING, rules=(replace(RULE, maximum=Decimal("1.5")),))),
        digest(replace(BINDING, invalid=Action.DROP)),
        digest(with_schema(reduce={"strategy": "lastWriteWins"})),
        digest(replace(BINDING, collection=Collection("orders", ("/sum",), SCHEMA))),
        digest(replace(BINDING, source=FormatSource("rate", order_by=("time",)))),
        digest(chosen=replace(CHOSEN, values=())),
        digest(chosen=replace(CHOSEN, document=None)),
        digest(chosen=replace(CHOSEN, delta_updates=True)),
    ],
)
def test_what_could_change_a_row_changes_it(changed: str) -> None:
    assert changed != digest()


def test_nothing_else_changes_it() -> None:
    turned = {name: SCHEMA[name] for name in reversed(SCHEMA)}
    assert digest(replace(BINDING, collection=Collection("orders", ("/id",), turned))) == digest()
    assert digest(shards=7, endpoint={"path": "elsewhere"}) == digest()
