"""Values of documents as columns: what each type takes, and what an error says of what it does not."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SchemaError
from headrace.model.collections import Field
from headrace.model.columns import column_of, decimal_text, extract
from headrace.model.field_types import FieldType

MORNING = datetime(2026, 11, 15, 8, 30, tzinfo=UTC)


def field(kind: str, required: bool = False) -> Field:
    return Field("it", "/it", FieldType.parse(kind), required)


def stored(kind: str, value: Any) -> Any:
    return column_of(field(kind), [{"it": value}]).to_pylist()[0]


TAKEN: dict[str, list[tuple[Any, Any]]] = {
    "boolean": [(True, True), (False, False)],
    "integer": [(0, 0), (2**63 - 1, 2**63 - 1), (-(2**63), -(2**63)), (3.0, 3), (-0.0, 0), (1e15, 10**15)],
    "number": [(1.5, 1.5), (3, 3.0), (-0.0, 0.0), (5e-324, 5e-324), (2**60, float(2**60))],
    "string": [("", ""), ("text", "text"), ("\u2603 \U0001f600 \0", "\u2603 \U0001f600 \0")],
    "date": [
        ("2026-11-15", date(2026, 11, 15)),
        ("0001-01-01", date(1, 1, 1)),
        ("2024-02-29", date(2024, 2, 29)),
    ],
    "date-time": [
        ("2026-11-15T08:30:00Z", MORNING),
        ("2026-11-15T08:30:00z", MORNING),
        ("2026-11-15t08:30:00.000Z", MORNING),
        ("2026-11-15T08:30:00+00:00", MORNING),
        ("2026-11-15T08:30:00-00:00", MORNING),
        ("2026-11-15T10:30:00+02:00", MORNING),
        ("2026-11-14T22:30:00-10:00", MORNING),
        ("2026-11-15T14:15:00+05:45", MORNING),
        ("2026-11-15T08:30:00.5Z", MORNING.replace(microsecond=500_000)),
        ("2026-11-15T08:30:00.123456Z", MORNING.replace(microsecond=123_456)),
        ("1969-12-31T23:59:59.999999Z", datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        ("9999-12-31T23:59:59Z", datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
    "decimal(10,2)": [
        ("12.50", Decimal("12.50")),
        ("12.5", Decimal("12.50")),
        ("12", Decimal("12.00")),
        ("+12", Decimal("12.00")),
        ("-0.01", Decimal("-0.01")),
        ("-0", Decimal("0.00")),
        ("99999999.99", Decimal("99999999.99")),
        ("0000000000000012.50", Decimal("12.50")),
    ],
    "decimal(38,38)": [("0." + "9" * 38, Decimal("0." + "9" * 38)), ("0", Decimal(0))],
    "json": [
        ({"b": [1, None], "a": "x"}, '{"b":[1,null],"a":"x"}'),
        ([], "[]"),
        ("text", '"text"'),
        (1.5, "1.5"),
        (False, "false"),
        ("\u2603", '"\u2603"'),
    ],
}
REFUSED: dict[str, list[Any]] = {
    "boolean": [1, 0, "true", []],
    "integer": [True, 1.5, "1", 2**63, -(2**63) - 1, 2.0**63, 1e300, float("inf"), float("nan"), [1], 2**70],
    "number": [True, "1.5", [1.5], {}, 10**400],
    "string": [1, True, ["a"], {}],
    "date": [
        20261115,
        "",
        "20261115",
        "2026-W46-7",
        "2026-11-15T00:00:00Z",
        "2026-02-30",
        "2026-1-5",
        " 2026-11-15",
        "0000-01-01",
        "12026-01-01",
    ],
    "date-time": [
        1763195400,
        "2026-11-15",
        "2026-11-15T08:30:00",
        "2026-11-15 08:30:00Z",
        "2026-11-15T08:30Z",
        "20261115T083000Z",
        "2026-11-15T08:30:00+0200",
        "2026-11-15T08:30:00+25:00",
        "2026-11-15T24:00:00Z",
        "2026-11-15T23:59:60Z",
        "0001-01-01T00:00:00+02:00",
        "9999-12-31T23:59:59-01:00",
    ],
    "decimal(10,2)": [
        12.5,
        12,
        True,
        "",
        "12.505",
        "12.500",
        "100000000",
        "-100000000.00",
        "1e3",
        "1E+3",
        "0e50",
        "0e-999999999",
        "1e-999999999",
        "NaN",
        "Infinity",
        "1_000",
        "\u0661",
        " 1",
        "1.",
        ".5",
        "1,5",
    ],
}


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [(kind, *example) for kind, examples in TAKEN.items() for example in examples],
)
def test_a_value_is_stored_as_what_it_stands_for(kind: str, value: Any, expected: Any) -> None:
    found = stored(kind, value)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind, values in REFUSED.items() for value in values]
)
def test_a_value_of_another_type_is_refused(kind: str, value: Any) -> None:
    with pytest.raises(SchemaError) as refused:
        stored(kind, value)
    assert str(refused.value).startswith(f"field 'it' is {kind}, and ")
    assert str(refused.value).endswith(" is not one")


def test_an_error_shows_the_value_but_not_all_of_a_long_one() -> None:
    with pytest.raises(SchemaError, match="field 'it' is integer, and \"abc\" is not one"):
        stored("integer", "abc")
    with pytest.raises(SchemaError, match=r'and \{"a": 1\} is not one'):
        stored("integer", {"a": 1})
    with pytest.raises(SchemaError) as refused:
        stored("integer", "x" * 1_000_000)
    assert len(str(refused.value)) < 150


@pytest.mark.parametrize("kind", [*TAKEN])
def test_what_is_missing_or_null_is_null_unless_it_is_required(kind: str) -> None:
    documents: list[Any] = [{}, {"it": None}, [], None, 3]
    assert column_of(field(kind), documents).null_count == len(documents)
    for document in documents:
        with pytest.raises(SchemaError, match="field 'it' is required and is missing or null"):
            column_of(field(kind, required=True), [document])


@pytest.mark.parametrize("kind", [*TAKEN])
def test_no_documents_are_an_empty_column_of_the_type(kind: str) -> None:
    column = column_of(field(kind), [])
    assert len(column) == 0
    assert column.type == FieldType.parse(kind).arrow


def test_text_that_is_no_unicode_is_refused() -> None:
    for kind in ("string", "json"):
        with pytest.raises(SchemaError, match="field 'it'"):
            stored(kind, "half a pair: \ud83d")


def test_fields_are_extracted_from_where_they_are() -> None:
    deep = Field("a/b", "/a/b", FieldType.parse("integer"))
    odd = Field("x/y", "/x~1y", FieldType.parse("string"))
    rows = extract([odd, deep], [{"a": {"b": 1}, "x/y": "z"}, {"a": 5}])
    assert rows.schema.names == ["x/y", "a/b"]
    assert rows.to_pylist() == [{"x/y": "z", "a/b": 1}, {"x/y": None, "a/b": None}]


def test_no_fields_are_no_columns() -> None:
    assert extract([], [{}, {}]).num_columns == 0


def test_an_error_names_the_field_that_it_is_about() -> None:
    fields = [
        Field("good", "/good", FieldType.parse("integer")),
        Field("bad", "/bad", FieldType.parse("date")),
    ]
    with pytest.raises(SchemaError, match="field 'bad' is date"):
        extract(fields, [{"good": 1, "bad": "2026-01-01"}, {"good": 2, "bad": "soon"}])


EXACT = Context(prec=60)


@given(
    st.tuples(st.integers(1, 38), st.integers(0, 38)).flatmap(
        lambda digits: st.tuples(
            st.just((max(digits), digits[1])),
            st.integers(-(10 ** max(digits)) + 1, 10 ** max(digits) - 1),
        )
    )
)
def test_decimals_come_out_in_plain_notation_with_all_their_digits(
    drawn: tuple[tuple[int, int], int],
) -> None:
    (precision, scale), digits = drawn
    value = Decimal(digits).scaleb(-scale, EXACT)
    (text,) = decimal_text(pa.array([value], pa.decimal128(precision, scale))).to_pylist()
    assert text == format(value, "f")
    assert len(text.partition(".")[2]) == scale
    # And in again.
    assert stored(f"decimal({precision},{scale})", text) == value


def test_decimals_among_nulls() -> None:
    values = [None, Decimal("0.000000001"), Decimal("-12.5"), None]
    text = decimal_text(pa.array(values, pa.decimal128(38, 9)))
    assert text.to_pylist() == [None, "0.000000001", "-12.500000000", None]
    assert decimal_text(pa.array([], pa.decimal128(5, 2))).to_pylist() == []
    assert decimal_text(pa.array([None], pa.decimal128(5, 2))).to_pylist() == [None]


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.timezones()))  # noqa: DTZ001
def test_any_spelling_of_an_instant_is_that_instant(instant: datetime) -> None:
    offset = instant.utcoffset()
    assert offset is not None
    in_utc = instant.astimezone(UTC)
    # Of old there were offsets with seconds, which RFC 3339 cannot write.
    spelled = in_utc if offset.seconds % 60 else instant
    assert stored("date-time", spelled.isoformat()) == in_utc


@given(st.dates())
def test_any_date_is_that_date(day: date) -> None:
    assert stored("date", day.isoformat()) == day
