"""Different keys are different texts, which a person can read and a program can take apart."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.redis.layouts import check_prefixes
from headrace.connectors.redis.texts import redis_keys, texts
from headrace.errors import ConfigError
from headrace.model.columns import extract
from headrace.testing import samples
from tests.examples import examples

# Few characters, those that mean something among them, so that keys come close to each other.
AWKWARD = st.text(st.sampled_from(":%25A3\u2603\0 "), max_size=6)


def key_of(prefix: str, *values: str) -> str:
    columns = {f"c{number}": [value] for number, value in enumerate(values)}
    return redis_keys(prefix, pa.record_batch(columns))[0]


@pytest.mark.parametrize(
    ("values", "key"),
    [
        (("ann", "x"), "p:ann:x"),
        (("a:b", "x"), "p:a%3Ab:x"),
        (("a", "b:x"), "p:a:b%3Ax"),
        (("50%", ""), "p:50%25:"),
        (("", ""), "p::"),
        (("%3A", ":"), "p:%253A:%3A"),
        (("snow \u2603", "\n"), "p:snow \u2603:\n"),
    ],
)
def test_how_keys_read(values: tuple[str, ...], key: str) -> None:
    assert key_of("p", *values) == key


@given(st.lists(st.tuples(AWKWARD, AWKWARD), unique=True, min_size=2, max_size=50))
def test_different_keys_never_collide(keys: list[tuple[str, str]]) -> None:
    spelled = redis_keys(
        "p", pa.record_batch([pa.array(part) for part in zip(*keys, strict=True)], ["a", "b"])
    )
    assert len(set(spelled)) == len(keys)


@given(st.lists(AWKWARD | st.text(), min_size=1, max_size=4))
def test_a_key_can_be_taken_apart(values: list[str]) -> None:
    parts = key_of("a:prefix", *values).removeprefix("a:prefix:").split(":")
    assert [part.replace("%3A", ":").replace("%25", "%") for part in parts] == values


# Of so few words and joints that keys of two prefixes would often be the same, were both allowed.
WORDS = st.sampled_from(["a", "b"])
PREFIXES = st.lists(WORDS, min_size=1, max_size=3).map(":".join)
KEYS = st.lists(WORDS, min_size=1, max_size=3)


@examples(5)
@given(PREFIXES, KEYS, PREFIXES, KEYS)
def test_bindings_never_share_a_key(
    first: str, first_key: list[str], second: str, second_key: list[str]
) -> None:
    try:
        check_prefixes([first, second], {})
    except ConfigError:
        return
    assert not {first, key_of(first, *first_key)} & {second, key_of(second, *second_key)}


def test_every_type_of_key() -> None:
    document = samples.key_types_documents()[-1]
    keys = extract(samples.KEY_TYPES.key_fields, [document])
    assert redis_keys("keys", keys) == [
        "keys:\u2603:9223372036854775807:false:2026-11-15:1900-01-01T00%3A00%3A00.500000Z:-12345678.90"
    ]


@given(
    st.lists(st.floats(allow_nan=False) | st.none(), min_size=1),
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), min_size=1),
)
def test_numbers_read_back_as_they_were(numbers: list[Any], integers: list[Any]) -> None:
    spelled = texts(pa.array(numbers, pa.float64())).to_pylist()
    assert [None if text is None else float(text) for text in spelled] == numbers
    spelled = texts(pa.array(integers, pa.int64())).to_pylist()
    assert [None if text is None else int(text) for text in spelled] == integers
