"""What clients may say in `app_metadata`, and how they are told that they may not."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigError
from headrace.ingest.options import (
    Numbering,
    Options,
    has_options,
    numbering_of,
    options_of,
    parse_metadata,
)
from headrace.model.tiers import Tier


def parse(value: Any) -> dict[str, Any]:
    return parse_metadata(pa.py_buffer(json.dumps(value).encode()))


def test_options_are_all_optional() -> None:
    assert parse_metadata(None) == parse_metadata(pa.py_buffer(b"")) == parse({}) == {}
    assert options_of({}) == Options(given=True)
    assert not has_options({"seq": 1, "rows": [1]})


def test_options_are_understood() -> None:
    raw = parse(
        {"producer": "till-1", "levels": ["COMMITTED", "memory"], "acks": "watermark", "resume_after": 0}
        | {"first_seq": 7}
    )
    assert has_options(raw)
    assert options_of(raw) == Options("till-1", (Tier.MEMORY, Tier.COMMITTED), True, 0, 7, True)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"producer": 5}, "option producer is a text of at most 200 bytes, not 5"),
        ({"producer": "ü" * 101}, "option producer is a text of at most 200 bytes"),
        ({"acks": "each"}, "option acks is 'per-lsn' or 'watermark', not 'each'"),
        ({"levels": "MEMORY"}, "option levels is a list of durability levels, not 'MEMORY'"),
        ({"levels": []}, "option levels is a list of durability levels, not []"),
        ({"levels": ["DISK"]}, "'DISK' is not a durability level: MEMORY, LOCAL_DISK"),
        ({"levels": [["MEMORY"]]}, "is not a durability level"),
        ({"resume_after": -1}, "option resume_after is an LSN, not -1"),
        ({"resume_after": True}, "option resume_after is an LSN, not True"),
        ({"first_seq": 0}, "option first_seq is an integer from 1 on, not 0"),
        ({"resume_after": 1.5}, "option resume_after is an LSN, not 1.5"),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        options_of(parse(raw))
    assert message in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not JSON: leave it out, or send an object"),
        (b"\xff\xfe", "not JSON"),
        (b"[1]", "is [1]: leave it out, or send an object"),
        (
            b'{"prodcer": "x"}',
            "a key 'prodcer'; the keys are producer, levels, acks, resume_after, first_seq, seq, rows",
        ),
    ],
)
def test_metadata_that_is_not_ours_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_metadata(pa.py_buffer(data))
    assert message in caught.value.message


def test_numbers_are_understood() -> None:
    assert numbering_of({"seq": 7}, 3, has_producer=True) == Numbering(7)
    assert numbering_of({"seq": 7, "rows": [2, 1]}, 3, has_producer=True) == Numbering(7, [2, 1])
    assert numbering_of({"rows": [2, 1]}, 3, has_producer=False) == Numbering(0, [2, 1])
    assert numbering_of({}, 3, has_producer=False) == Numbering()


@pytest.mark.parametrize(
    ("raw", "has_producer", "message"),
    [
        ({}, True, "a message of a producer needs a seq"),
        ({"seq": 3}, False, "seq needs the option producer"),
        ({"seq": 0}, True, "seq is an integer from 1 on, not 0"),
        ({"seq": True}, True, "seq is an integer from 1 on, not True"),
        ({"seq": 2**63}, True, "seq is an integer from 1 on"),
        ({"rows": []}, False, "rows is a list"),
        ({"rows": 3}, False, "rows is a list"),
        ({"rows": [3, 0]}, False, "each at least 1"),
        ({"rows": [3, -1, 1]}, False, "each at least 1"),
        ({"rows": [True, 2]}, False, "rows is a list"),
        ({"rows": [1, 1]}, False, "rows adds up to 2, but the batch has 3 rows"),
    ],
)
def test_wrong_numbers_are_refused_in_a_sentence(
    raw: dict[str, Any], has_producer: bool, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        numbering_of(raw, 3, has_producer)
    assert message in caught.value.message
