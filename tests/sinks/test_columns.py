"""The columns of a place, and how they may change."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.errors import SchemaError
from headrace.sinks.columns import arrow_type, as_struct, columns_from, grown

NESTED = {
    "type": "struct",
    "fields": [
        {
            "name": "f",
            "type": {"type": "array", "elementType": "long", "containsNull": False},
            "nullable": False,
            "metadata": {"comment": "x"},
        }
    ],
}


def test_types_are_those_of_arrow() -> None:
    columns = columns_from(
        {"fields": [{"name": "o", "type": NESTED}, {"name": "m", "type": "decimal(10,2)"}]}
    )
    assert arrow_type(columns["o"]) == pa.struct([("f", pa.list_(pa.int64()))])
    assert arrow_type(columns["m"]) == pa.decimal128(10, 2)
    counts = {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": False}
    assert arrow_type(counts) == pa.map_(pa.string(), pa.date32())
    with pytest.raises(SchemaError, match="columns of type void cannot be kept"):
        arrow_type("void")
    with pytest.raises(SchemaError, match="columns of type udt cannot be kept"):
        columns_from({"fields": [{"name": "o", "type": {"type": "udt"}}]})


def test_what_may_be_null_makes_no_difference() -> None:
    strict = columns_from({"fields": [{"name": "o", "type": NESTED, "nullable": False}]})
    (field,) = as_struct(strict)["fields"]
    assert field["nullable"]
    assert field["type"]["fields"][0]["type"]["containsNull"]
    assert grown(strict, columns_from(as_struct(strict)), "here") == strict


def test_columns_may_come_and_may_stay_away() -> None:
    assert grown({"a": "long"}, {"b": "string"}, "here") == {"a": "long", "b": "string"}


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ({"a": "string"}, "here has the column 'a' as long, and it comes as string: give it another name"),
        ({"A": "long"}, "here has a column 'a', and 'A' differs in case only: rename it"),
        ({"b": "long", "B": "long"}, "here has a column 'b', and 'B' differs in case only: rename it"),
    ],
)
def test_any_other_change_is_refused(new: dict[str, str], said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        grown({"a": "long"}, new, "here")
