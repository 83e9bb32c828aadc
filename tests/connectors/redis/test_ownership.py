"""Whose a prefix is, beside what the conformance suite asks of every connector."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.connectors.redis import connector
from headrace.connectors.redis.fence import install_fence
from headrace.errors import EndpointError, Fenced
from headrace.model.ownership import Mode, Owner, Target
from headrace.protocol.messages import Apply, Validate, ValidateBinding
from headrace.testing import Runtime
from tests.connectors.redis.driving import CLIENT, apply, ask, planned, things, write

MINE = Owner("view", "first", ("id",), Mode.VIEW)


def target(url: str, name: str = "view", **resource: Any) -> Target | None:
    binding = ValidateBinding(things(), {"prefix": "things", **resource})
    return CLIENT.validate(Validate(name, "redis", {"url": url}, (binding,))).bindings[0].target


def claim(url: str, name: str = "view", lineage: str = "first", **asked: Any) -> str:
    request = Apply(planned(url, things(), name=name), "1", lineage=lineage, **asked)
    return CLIENT.apply(request).action_description


def as_before_lineages(url: str) -> None:
    """What the version before this one would have recorded of the prefix, and of its rows."""
    layout = json.loads(ask(url, "HGET", "headrace:layouts", "things"))
    del layout["lineage"]
    ask(url, "HSET", "headrace:layouts", "things", json.dumps(layout))
    ask(url, "DEL", "headrace:stored")


def test_what_apply_says(redis_url: str) -> None:
    assert claim(redis_url).splitlines() == [
        "prefix things: documents in format json, by id",
        "let prefix things say that materialization 'view' writes it",
    ]
    assert claim(redis_url, lineage="second") == "let prefix things say that materialization 'view' writes it"
    with pytest.raises(EndpointError) as refused:
        claim(redis_url, "other")
    assert str(refused.value) == (
        "prefix 'things' is written by materialization 'view': give the binding another, or take this one "
        "over with --adopt once nobody else writes it"
    )
    assert claim(redis_url, "other", adopts=True) == (
        "let prefix things say that materialization 'other' writes it, and no longer 'view'"
    )


def test_what_an_older_version_wrote_goes_on(redis_url: str) -> None:
    apply(redis_url, things())
    write(redis_url, things(), {"id": 1})
    as_before_lineages(redis_url)
    assert target(redis_url) == Target(exists=True, has_rows=True)
    apply(redis_url, things(new={"type": "string"}))
    write(redis_url, things(), {"id": 2})
    assert target(redis_url) == Target(exists=True, has_rows=True)
    claim(redis_url)
    assert target(redis_url) == Target(True, True, MINE)


def test_what_an_older_version_wrote_has_rows_also_once_it_is_marked(redis_url: str) -> None:
    apply(redis_url, things())
    as_before_lineages(redis_url)
    claim(redis_url)
    assert target(redis_url) == Target(True, True, MINE)


def test_what_an_older_version_wrote_is_refused_to_others(redis_url: str) -> None:
    apply(redis_url, things())
    as_before_lineages(redis_url)
    found = target(redis_url, "other")
    assert found is not None
    assert found.owner == Owner("view", "", ("id",), Mode.VIEW)
    with pytest.raises(EndpointError, match="is written by materialization 'view'"):
        claim(redis_url, "other")


def test_rows_are_those_of_their_own_prefix(redis_url: str) -> None:
    for prefix in ("things", "thing", "things2"):
        apply(redis_url, things(), prefix=prefix)
    write(redis_url, things(), {"id": 1})
    told = [target(redis_url, prefix=prefix) for prefix in ("things", "thing", "things2")]
    assert [found and found.has_rows for found in told] == [True, False, False]


def test_a_prefix_that_was_removed_as_documented_is_new(redis_url: str) -> None:
    claim(redis_url)
    write(redis_url, things(), {"id": 1})
    ask(redis_url, "DEL", "things:1")
    ask(redis_url, "HDEL", "headrace:layouts", "things")
    assert target(redis_url) == Target(exists=False)
    claim(redis_url, "other")
    assert target(redis_url, "other") == Target(True, False, Owner("other", "first", ("id",), Mode.VIEW))


def test_another_mode_is_refused_whoever_says_so(redis_url: str) -> None:
    claim(redis_url)
    view = planned(redis_url, things())
    (binding,) = view.bindings
    appended = type(binding)(
        binding.collection,
        {**binding.resource, "delta_updates": True},
        binding.resource_path,
        delta_updates=True,
    )
    for adopts in (False, True):
        with pytest.raises(EndpointError, match="prefix 'things' holds documents in format json"):
            CLIENT.apply(
                Apply(type(view)("view", "redis", view.endpoint, (appended,)), "1", False, "first", adopts)
            )
    assert target(redis_url) == Target(True, False, MINE)


def test_who_takes_a_prefix_over_ends_the_streams_that_wrote_it(redis_url: str) -> None:
    claim(redis_url)
    view = planned(redis_url, things())
    runtime = Runtime(CLIENT, view)
    runtime.open()
    runtime.transact([[{"id": 1}]], {"n": 1})
    claim(redis_url, "other", adopts=True)
    with pytest.raises(Fenced):
        runtime.transact([[{"id": 2}]], {"n": 2})
    assert ask(redis_url, "EXISTS", "things:1", "things:2") == 1
    with (
        pytest.raises(EndpointError, match="is written by materialization 'other'"),
        Runtime(CLIENT, view),
    ):
        pass


def test_a_stream_that_opens_while_its_prefix_is_taken_over_is_refused(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim(redis_url)

    def install_late(*asked: Any) -> Any:
        claim(redis_url, "other", adopts=True)
        return install_fence(*asked)

    monkeypatch.setattr(connector, "install_fence", install_late)
    with (
        pytest.raises(EndpointError, match="is written by materialization 'other'"),
        Runtime(CLIENT, planned(redis_url, things())),
    ):
        pass
