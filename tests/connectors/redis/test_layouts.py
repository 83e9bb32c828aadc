"""What Validate and Apply say of prefixes that are used already."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError, EndpointError
from headrace.model.collections import Collection
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.messages import Apply, Validate, ValidateBinding
from headrace.testing import Runtime, materialization_of, samples
from tests.connectors.redis.driving import CLIENT, apply, ask, planned, things, write

GOLDEN = Path(__file__).parent / "golden"


def validated(url: str, collection: Collection, **resource: Any) -> str:
    binding = ValidateBinding(collection, {"prefix": "things", **resource})
    (answer,) = CLIENT.validate(Validate("view", "redis", {"url": url}, (binding,))).bindings
    said = [
        f"{name}: {constraint.kind}: {constraint.reason}\n" for name, constraint in answer.constraints.items()
    ]
    return "".join(said)


def layouts(url: str) -> dict[str, Any]:
    return {prefix: json.loads(layout) for prefix, layout in ask(url, "HGETALL", "headrace:layouts").items()}


def test_what_validate_says(redis_url: str) -> None:
    before = things(
        kept={"type": "string"}, wider={"type": "integer"}, other={"type": "string"}, tags={"type": "object"}
    )
    apply(redis_url, before, format="hash")
    changed = things(
        kept={"type": "string"},
        wider={"type": "number"},
        other={"type": "integer"},
        new={"type": "boolean"},
        tags={"type": "object"},
    )
    said = validated(redis_url, changed, format="hash")
    for prefix, resource in (("json", {}), ("deltas", {"format": "hash", "delta_updates": True})):
        said += f"\n{prefix}\n" + validated(redis_url, samples.ORDERS, prefix=prefix, **resource)
    assert said == (GOLDEN / "validate.txt").read_text()


def test_what_apply_says(redis_url: str) -> None:
    bindings = [
        ValidateBinding(samples.ORDERS, {"prefix": "orders"}),
        ValidateBinding(samples.ORDERS, {"prefix": "by day", "format": "hash"}),
        ValidateBinding(samples.ORDERS, {"prefix": "deltas", "delta_updates": True}),
    ]
    view = materialization_of(CLIENT, "view", "redis", {"url": redis_url}, bindings)
    said = CLIENT.apply(Apply(view, "1")).action_description
    assert said.splitlines() == [
        "prefix orders: documents in format json, by customer, day",
        "prefix by day: documents in format hash, by customer, day",
        "prefix deltas: a stream of delta updates in format json, by customer, day",
    ]
    assert layouts(redis_url)["orders"] == {
        "materialization": "view",
        "format": "json",
        "delta_updates": False,
        "keys": [["customer", "string"], ["day", "date"]],
        "fields": {},
        "lineage": "",
    }
    assert set(layouts(redis_url)["by day"]["fields"]) == {"count", "total", "largest", "first", "note"}


def test_validate_and_a_dry_run_change_nothing(redis_url: str) -> None:
    CLIENT.apply(Apply(planned(redis_url, things()), "1", dry_run=True))
    assert ask(redis_url, "KEYS", "*") == []


def test_fields_come_and_go_and_widen(redis_url: str) -> None:
    apply(redis_url, things(size={"type": "integer"}, old={"type": "string"}), format="hash")
    write(redis_url, things(size={"type": "integer"}), {"id": 1, "size": 5}, format="hash")
    changed = things(size={"type": "number"}, new={"type": "boolean"})
    assert apply(redis_url, changed, format="hash").splitlines() == [
        "prefix things: field size is number now, and was integer",
        "prefix things: new field new, boolean",
    ]
    assert apply(redis_url, changed, format="hash") == ""
    write(redis_url, changed, {"id": 2, "size": 5.5, "new": True}, format="hash")
    assert ask(redis_url, "HGET", "things:1", "size") == "5"
    assert ask(redis_url, "HMGET", "things:2", "size", "new") == ["5.5", "true"]
    with pytest.raises(ConfigError, match="'old' is stored as string and now is integer"):
        planned(redis_url, things(old={"type": "integer"}), format="hash")


@pytest.mark.parametrize(
    ("collection", "resource", "reason"),
    [
        (
            things(),
            {"format": "hash"},
            "prefix 'things' holds documents in format json: materialize under a new",
        ),
        (things(), {"delta_updates": True}, "prefix 'things' holds documents in format json: materialize"),
        (
            Collection("things", ("/name",), things(("name",), name={"type": "string"}).schema),
            {},
            r"the collection's key is \(name string\) and prefix 'things' holds documents by \(id integer\)",
        ),
    ],
)
def test_an_impossible_change_is_refused_and_changes_nothing(
    redis_url: str, collection: Collection, resource: dict[str, Any], reason: str
) -> None:
    apply(redis_url, things())
    before = layouts(redis_url)
    with pytest.raises(ConfigError, match=reason):
        planned(redis_url, collection, **resource)
    unasked = Materialization(  # Validate was never asked, or the layout has changed since
        "view",
        "redis",
        {"url": redis_url},
        (
            Binding(things(), {"prefix": "fresh"}, ("fresh",)),
            Binding(
                collection,
                {"prefix": "things", **resource},
                ("things",),
                delta_updates=resource.get("delta_updates", False),
            ),
        ),
    )
    with pytest.raises(EndpointError, match=reason):
        CLIENT.apply(Apply(unasked, "2"))
    with pytest.raises(EndpointError, match=reason), Runtime(CLIENT, unasked):
        pass
    assert layouts(redis_url) == before


@pytest.mark.parametrize(
    ("prefix", "sentence"),
    [
        ("things:more", "prefix 'things:more' and prefix 'things' of another binding lie within each other"),
        ("thin", None),
        ("things2", None),
    ],
)
def test_prefixes_of_materializations_do_not_overlap(
    redis_url: str, prefix: str, sentence: str | None
) -> None:
    apply(redis_url, things())
    if sentence is None:
        apply(redis_url, things(), prefix=prefix, name="other")
        return
    with pytest.raises(ConfigError, match=sentence):
        planned(redis_url, things(), name="other", prefix=prefix)


def test_prefixes_of_bindings_do_not_overlap(redis_url: str) -> None:
    for first, second in (("a", "a"), ("a:b", "a"), ("a", "a:b")):
        bindings = [ValidateBinding(things(), {"prefix": prefix}) for prefix in (first, second)]
        with pytest.raises(ConfigError, match="another binding"):
            materialization_of(CLIENT, "view", "redis", {"url": redis_url}, bindings)


def test_what_is_stored_without_its_document_cannot_be_loaded(redis_url: str) -> None:
    binding = Binding(things(), {"prefix": "things"}, ("things",), document=None)
    with pytest.raises(EndpointError, match="stores no document"):
        CLIENT.apply(Apply(Materialization("view", "redis", {"url": redis_url}, (binding,)), "1"))
