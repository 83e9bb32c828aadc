"""The types of fields: their names, their Arrow form, which can be keys, and which widen to which."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.model.field_types import MAX_PRECISION, FieldType, Kind, decimal_type, type_of_schema

BOOLEAN, INTEGER, NUMBER, STRING, DATE, DATE_TIME, JSON = (
    FieldType(kind) for kind in Kind if kind is not Kind.DECIMAL
)
DECIMALS = st.tuples(st.integers(1, MAX_PRECISION), st.integers(0, MAX_PRECISION)).map(
    lambda digits: FieldType(Kind.DECIMAL, max(digits), digits[1])
)
TYPES = st.sampled_from([BOOLEAN, INTEGER, NUMBER, STRING, DATE, DATE_TIME, JSON]) | DECIMALS


def decimal(precision: int, scale: int) -> FieldType:
    return FieldType(Kind.DECIMAL, precision, scale)


@given(TYPES)
def test_a_type_reads_as_it_is_written(kind: FieldType) -> None:
    assert FieldType.parse(str(kind)) == kind


@pytest.mark.parametrize(
    ("kind", "arrow"),
    [
        (BOOLEAN, pa.bool_()),
        (INTEGER, pa.int64()),
        (NUMBER, pa.float64()),
        (STRING, pa.string()),
        (DATE, pa.date32()),
        (DATE_TIME, pa.timestamp("us", tz="UTC")),
        (decimal(18, 2), pa.decimal128(18, 2)),
        (JSON, pa.string()),
    ],
    ids=str,
)
def test_a_type_has_an_arrow_form(kind: FieldType, arrow: pa.DataType) -> None:
    assert kind.arrow == arrow


@given(DECIMALS)
def test_every_decimal_has_an_arrow_form(kind: FieldType) -> None:
    assert (kind.arrow.precision, kind.arrow.scale) == (kind.precision, kind.scale)


def test_floats_and_json_are_no_keys() -> None:
    types = [BOOLEAN, INTEGER, NUMBER, STRING, DATE, DATE_TIME, decimal(18, 2), JSON]
    assert [kind for kind in types if not kind.can_be_key] == [NUMBER, JSON]


WIDENINGS = {
    (INTEGER, NUMBER),
    (INTEGER, STRING),
    (INTEGER, decimal(19, 0)),
    (INTEGER, decimal(38, 19)),
    (DATE, STRING),
    (decimal(18, 2), STRING),
    (decimal(18, 2), decimal(19, 2)),
    (decimal(18, 2), decimal(20, 4)),
    (decimal(18, 2), decimal(38, 19)),
    (decimal(18, 2), decimal(38, 20)),
}
OTHERS = [BOOLEAN, INTEGER, NUMBER, STRING, DATE, DATE_TIME, JSON]
DECIMAL_DIGITS = [
    *((18, 0), (18, 2), (18, 3), (19, 0), (19, 2), (19, 4), (20, 4)),
    *((38, 19), (38, 20), (38, 23), (2, 2)),
]


@pytest.mark.parametrize("narrow", [*OTHERS, decimal(18, 2)], ids=str)
@pytest.mark.parametrize("wide", [*OTHERS, *(decimal(*digits) for digits in DECIMAL_DIGITS)], ids=str)
def test_a_type_widens_only_to_what_holds_all_of_its_values(narrow: FieldType, wide: FieldType) -> None:
    assert narrow.widens_to(wide) == ((narrow, wide) in WIDENINGS)


@given(DECIMALS, DECIMALS)
def test_a_decimal_widens_to_one_that_holds_its_extremes(narrow: FieldType, wide: FieldType) -> None:
    largest = Fraction(10**narrow.precision - 1, 10**narrow.scale)
    smallest = Fraction(1, 10**narrow.scale)
    bound = Fraction(10**wide.precision, 10**wide.scale)
    holds_all = largest < bound and (smallest * 10**wide.scale).denominator == 1
    assert narrow.widens_to(wide) == (holds_all and narrow != wide)


@given(TYPES)
def test_no_type_widens_to_itself(kind: FieldType) -> None:
    assert not kind.widens_to(kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("decimal", decimal(38, 9)),
        ("decimal(18,2)", decimal(18, 2)),
        ("decimal(18, 2)", decimal(18, 2)),
        ("decimal(1,0)", decimal(1, 0)),
        ("decimal(38,38)", decimal(38, 38)),
        ("decimal(5,0)", decimal(5, 0)),
    ],
)
def test_decimals_as_they_are_written(text: str, kind: FieldType) -> None:
    assert decimal_type(text) == kind


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("decimal(18)", "write it as decimal(18,2)"),
        ("decimal(18,2", "write it as decimal(18,2)"),
        ("decimal(a,b)", "write it as decimal(18,2)"),
        ("decimal(-1,0)", "write it as decimal(18,2)"),
        ("decimals", "write it as decimal(18,2)"),
        ("decimal(39,2)", "needs 1 <= precision <= 38 and 0 <= scale <= precision"),
        ("decimal(0,0)", "needs 1 <= precision <= 38"),
        ("decimal(2,3)", "0 <= scale <= precision"),
    ],
)
def test_decimals_that_are_none(text: str, problem: str) -> None:
    for read in (decimal_type, FieldType.parse):
        with pytest.raises(SchemaError) as refused:
            read(text)
        assert repr(text) in str(refused.value)
        assert problem in str(refused.value)


@pytest.mark.parametrize("text", ["", "uuid", "INTEGER", "integer ", "null"])
def test_a_type_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(SchemaError, match="is not a type of a field: boolean, integer"):
        FieldType.parse(text)


@pytest.mark.parametrize(
    ("schema", "kind", "nullable"),
    [
        ({"type": "boolean"}, BOOLEAN, False),
        ({"type": "integer"}, INTEGER, False),
        ({"type": "number"}, NUMBER, False),
        ({"type": "string"}, STRING, False),
        ({"type": ["string"]}, STRING, False),
        ({"type": ["null", "string"]}, STRING, True),
        ({"type": ["integer", "number"]}, NUMBER, False),
        ({"type": ["integer", "null", "number"]}, NUMBER, True),
        ({"type": ["integer", "string"]}, JSON, False),
        ({"type": ["integer", "string", "null"]}, JSON, True),
        ({"type": "object"}, JSON, False),
        ({"type": "array"}, JSON, False),
        ({"type": ["array", "null"]}, JSON, True),
        ({"type": "null"}, JSON, True),
        ({}, JSON, True),
        (True, JSON, True),
        (False, JSON, True),
        ({"type": "string", "format": "date"}, DATE, False),
        ({"type": ["string", "null"], "format": "date-time"}, DATE_TIME, True),
        ({"type": "string", "format": "decimal(10,3)"}, decimal(10, 3), False),
        ({"type": "string", "format": "decimal"}, decimal(38, 9), False),
        ({"type": "string", "format": "email"}, STRING, False),
        ({"type": "string", "format": "time"}, STRING, False),
        ({"type": "integer", "format": "date"}, INTEGER, False),
    ],
)
def test_the_type_of_a_schema(schema: Any, kind: FieldType, nullable: bool) -> None:
    assert type_of_schema(schema) == (kind, nullable)


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "text"}, "type 'text' is not a type of JSON schema"),
        ({"type": "decimal"}, "type 'decimal' is not a type of JSON schema"),
        ({"type": "date"}, "type 'date' is not a type of JSON schema"),
        ({"type": "json"}, "type 'json' is not a type of JSON schema"),
        ({"type": 1}, "type 1 is not a type of JSON schema"),
        ({"type": ["string", 1]}, "is not a type of JSON schema, nor a list of them"),
        ({"type": {"string": 1}}, "is not a type of JSON schema, nor a list of them"),
        ({"type": "string", "format": "decimal(99,1)"}, "needs 1 <= precision"),
        ("string", "'string' is not a JSON schema"),
        (None, "None is not a JSON schema"),
        ([], "is not a JSON schema"),
    ],
)
def test_what_is_no_schema_is_refused(schema: Any, problem: str) -> None:
    with pytest.raises(SchemaError) as refused:
        type_of_schema(schema)
    assert problem in str(refused.value)
