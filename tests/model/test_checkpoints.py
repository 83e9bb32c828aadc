"""Merge patches on connector checkpoints: the examples of RFC 7396, and what they add up to."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.model.checkpoints import START, merge_patch, to_json

# Appendix A of RFC 7396: a target, a patch and the result.
RFC_7396: list[tuple[Any, Any, Any]] = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("target", "patch", "result"), RFC_7396)
def test_an_example_of_the_rfc(target: Any, patch: Any, result: Any) -> None:
    """A checkpoint is an object, so each example stands at a name within one."""
    expected = {"kept": 1} if patch is None else {"kept": 1, "at": result}
    assert merge_patch({"kept": 1, "at": target}, {"at": patch}) == expected
    if isinstance(target, dict) and isinstance(patch, dict):
        assert merge_patch(target, patch) == result


def test_no_patch_leaves_the_checkpoint_as_it_was() -> None:
    assert merge_patch(None, None) is None
    assert merge_patch({"a": 1}, None) == {"a": 1}


def test_the_first_patch_makes_the_checkpoint() -> None:
    assert merge_patch(None, {"a": 1, "b": None}) == {"a": 1}
    assert merge_patch(None, {}) == {}


def test_the_start_is_empty() -> None:
    assert START == {}


JSON = st.recursive(
    st.none() | st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


def rfc_merge_patch(target: Any, patch: Any) -> Any:
    """The pseudocode of RFC 7396, section 2, word for word."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict):
        target = {}
    target = dict(target)
    for name, value in patch.items():
        if value is None:
            if name in target:
                del target[name]
        else:
            target[name] = rfc_merge_patch(target.get(name), value)
    return target


@given(OBJECTS, OBJECTS)
def test_any_patch_does_what_the_rfc_says(state: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((state, patch))
    assert merge_patch(state, patch) == rfc_merge_patch(state, patch)
    assert (state, patch) == before


@given(OBJECTS, OBJECTS)
def test_a_patch_twice_is_a_patch_once(state: dict[str, Any], patch: dict[str, Any]) -> None:
    """As a recovery log may replay one."""
    once = merge_patch(state, patch)
    assert merge_patch(once, patch) == once


def test_a_checkpoint_is_written_as_compact_json() -> None:
    text = to_json({"b": [1, None], "a": {"\u2603": 2**70}})
    assert text == '{"b":[1,null],"a":{"\u2603":1180591620717411303424}}'


@pytest.mark.parametrize("value", [{1}, object, float("nan")], ids=str)
def test_a_checkpoint_that_is_no_json_is_refused(value: object) -> None:
    with pytest.raises(ProtocolError, match="a message holds what is not JSON"):
        to_json({"it": value})
