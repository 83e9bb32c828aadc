"""Which locations of a document a replayed transaction counts twice in."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.redis.replays import counted_again

SUM: dict[str, Any] = {"type": "integer", "reduce": {"strategy": "sum"}}
MERGE: dict[str, Any] = {"reduce": {"strategy": "merge"}}


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        ({"properties": {"n": SUM}}, []),  # the last document wins as a whole
        ({**MERGE, "properties": {"n": SUM, "place": {"type": "string"}}}, ["/n"]),
        ({**MERGE, "properties": {"deep": {**MERGE, "properties": {"n": SUM}}}}, ["/deep/n"]),
        ({**MERGE, "properties": {"deep": {"properties": {"n": SUM}}}}, []),
        ({**MERGE, "additionalProperties": SUM}, ["/*"]),
        ({**MERGE, "additionalProperties": False}, []),
        ({**MERGE, "properties": {"list": {**MERGE, "prefixItems": [SUM, {}]}}}, ["/list/*"]),
        ({**MERGE, "properties": {"list": {"reduce": {"strategy": "append"}}}}, ["/list"]),
        ({**MERGE, "properties": {"most": {"reduce": {"strategy": "maximize"}}}}, []),
    ],
)
def test_what_counts_twice(schema: dict[str, Any], pointers: list[str]) -> None:
    assert list(counted_again(schema)) == pointers
