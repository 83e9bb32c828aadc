"""Rows of every type that a field can have, as packed tuples and back."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import TupleError
from headrace.model.field_types import FieldType, Kind
from headrace.protocol import tuples
from headrace.protocol.packed_rows import from_tuple_type, pack_rows, to_tuple_type, tuple_type, unpack_rows

DATE, INSTANT = FieldType(Kind.DATE), FieldType(Kind.DATE_TIME)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    # Not by division, which rounds to the digits of Python's context.
    return st.integers(-largest, largest).map(lambda digits: Decimal(digits).scaleb(-scale, EXACT))


EXACT = Context(prec=60)
INSTANTS = st.datetimes(timezones=st.just(UTC))
CLOSE_INSTANTS = st.integers(0, 3_000_000).map(
    lambda microseconds: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
)
TYPES: dict[FieldType, st.SearchStrategy[Any]] = {
    FieldType(Kind.BOOLEAN): st.booleans(),
    FieldType(Kind.INTEGER): st.integers(-(2**63), 2**63 - 1),
    FieldType(Kind.NUMBER): st.floats(allow_nan=False),
    FieldType(Kind.STRING): st.text(max_size=8),
    DATE: st.dates(),
    INSTANT: INSTANTS,
    FieldType(Kind.DECIMAL, 18, 2): decimals(18, 2),
    FieldType(Kind.DECIMAL, 38, 9): decimals(38, 9),
    FieldType(Kind.DECIMAL, 38, 38): decimals(38, 38),
    FieldType(Kind.DECIMAL, 5, 0): decimals(5, 0),
    FieldType(Kind.JSON): st.sampled_from(["{}", "[1,null]", '"x"']),
}


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    kinds = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4))
    count = draw(st.integers(0, 4))
    columns = [
        pa.array(draw(st.lists(st.none() | TYPES[kind], min_size=count, max_size=count)), kind.arrow)
        for kind in kinds
    ]
    return pa.RecordBatch.from_arrays(columns, names=[f"c{number}" for number in range(len(kinds))])


@given(batches())
def test_rows_come_back_as_they_were(rows: pa.RecordBatch) -> None:
    packed = pack_rows(rows)
    assert len(packed) == len(rows)
    assert unpack_rows(packed, rows.schema).equals(rows)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_has_rows_and_nulls_and_none_at_all(kind: FieldType) -> None:
    schema = pa.schema([("it", kind.arrow)])
    for values in ([], [None], [None, None]):
        rows = pa.record_batch([pa.array(values, kind.arrow)], schema=schema)
        assert unpack_rows(pack_rows(rows), schema).equals(rows)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (DATE, date(2026, 11, 15), "2026-11-15"),
        (DATE, date(1, 1, 1), "0001-01-01"),
        (DATE, date(9999, 12, 31), "9999-12-31"),
        (INSTANT, datetime(2026, 11, 15, 8, 30, tzinfo=UTC), "2026-11-15T08:30:00.000000Z"),
        (INSTANT, datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00.000000Z"),
        (INSTANT, datetime(1969, 12, 31, 23, 59, 59, 1, UTC), "1969-12-31T23:59:59.000001Z"),
        (INSTANT, datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), "9999-12-31T23:59:59.999999Z"),
        (FieldType(Kind.DECIMAL, 18, 2), Decimal("12.5"), "12.50"),
        (FieldType(Kind.DECIMAL, 18, 2), Decimal("-0.01"), "-0.01"),
        (FieldType(Kind.DECIMAL, 18, 0), Decimal("7"), "7"),
        (FieldType(Kind.DECIMAL, 38, 9), Decimal("0.000000001"), "0.000000001"),
        (FieldType(Kind.DECIMAL, 38, 38), Decimal("-1e-38"), "-0." + "0" * 37 + "1"),
    ],
)
def test_a_value_has_one_spelling(kind: FieldType, value: Any, text: str) -> None:
    column = pa.array([value], kind.arrow)
    assert to_tuple_type(column).to_pylist() == [text]
    assert pack_rows(pa.record_batch({"it": column})) == tuples.pack([pa.array([text])])
    assert from_tuple_type(pa.array([text]), pa.field("it", kind.arrow)).equals(column)


@pytest.mark.parametrize("kind", [Kind.BOOLEAN, Kind.INTEGER, Kind.NUMBER, Kind.STRING, Kind.JSON])
def test_other_types_are_packed_as_they_are(kind: Kind) -> None:
    arrow = FieldType(kind).arrow
    assert tuple_type(arrow) == arrow
    column = pa.array([None], arrow)
    assert to_tuple_type(column) is column


@given(st.lists(st.dates()))
def test_packed_dates_sort_as_dates(days: list[date]) -> None:
    packed = pack_rows(pa.record_batch({"day": pa.array(days, DATE.arrow)}))
    assert sorted(packed.to_pylist()) == [
        row for _, row in sorted(zip(days, packed.to_pylist(), strict=True))
    ]


@given(st.lists(INSTANTS | CLOSE_INSTANTS))
def test_packed_instants_sort_as_instants(instants: list[datetime]) -> None:
    packed = pack_rows(pa.record_batch({"at": pa.array(instants, INSTANT.arrow)}))
    assert sorted(packed.to_pylist()) == [
        row for _, row in sorted(zip(instants, packed.to_pylist(), strict=True))
    ]


MALFORMED = {
    DATE: ["", "2026-1-5", "2026-02-30", "2026-11-15T00:00:00Z", "20261115", "today", "12026-01-01"],
    INSTANT: [
        "",
        "2026-11-15",
        "2026-11-15T08:30:00",
        "2026-11-15T25:00:00Z",
        "2026-11-15T08:30:00.0000001Z",
    ],
    FieldType(Kind.DECIMAL, 10, 2): [
        "",
        "-",
        "twelve",
        "12.505",
        "12.",
        ".5",
        "+1",
        " 1",
        "1e3",
        "1e-999999999",
        "0E+999999999",
        "0." + "0" * 60 + "1",
        "123456789.00",
        "NaN",
        "1_0",
        "12.50\n",
    ],
}


@pytest.mark.parametrize(
    ("kind", "text"),
    [(kind, text) for kind, texts in MALFORMED.items() for text in texts],
)
def test_text_that_is_not_of_the_type_is_refused_with_its_row(kind: FieldType, text: str) -> None:
    good = {DATE: "2026-11-15", INSTANT: "2026-11-15T08:30:00.000000Z"}.get(kind, "12.50")
    packed = tuples.pack([pa.array([good, None, text, good, text])])
    with pytest.raises(TupleError) as refused:
        unpack_rows(packed, pa.schema([("it", kind.arrow)]))
    assert refused.value.row == 2
    assert str(refused.value).startswith(f"row 2, byte 0: field 'it' is {kind.arrow}, and ")


def test_long_text_is_cut_in_the_error() -> None:
    packed = tuples.pack([pa.array(["x" * 10_000])])
    with pytest.raises(TupleError) as refused:
        unpack_rows(packed, pa.schema([("it", pa.date32())]))
    assert len(str(refused.value)) < 200


@given(st.text(alphabet="0123456789.-+eE ", max_size=50))
def test_any_text_is_a_decimal_or_refused(text: str) -> None:
    schema = pa.schema([("it", pa.decimal128(10, 2))])
    packed = tuples.pack([pa.array([text])])
    try:
        (value,) = unpack_rows(packed, schema)["it"].to_pylist()
    except TupleError:
        return
    assert value == Decimal(text)


def test_a_type_that_is_not_declared_is_refused() -> None:
    packed = tuples.pack([pa.array([20_000])])
    with pytest.raises(TupleError):
        unpack_rows(packed, pa.schema([("it", pa.date32())]))


def test_an_error_says_where_in_the_tuple_its_element_starts() -> None:
    packed = tuples.pack([pa.array([1, 300]), pa.array(["2026-11-15", "soon"])])
    with pytest.raises(TupleError) as refused:
        unpack_rows(packed, pa.schema([("number", pa.int64()), ("day", pa.date32())]))
    assert (refused.value.row, refused.value.offset) == (1, 3)
    assert packed[1].as_py()[3:] == b"\x02soon\x00"


@given(st.lists(st.sampled_from(["2026-11-15", None, "soon"]), min_size=1))
def test_the_first_row_that_is_wrong_is_named(days: list[str | None]) -> None:
    packed = tuples.pack([pa.array(days, pa.string())])
    schema = pa.schema([("day", pa.date32())])
    if "soon" not in days:
        assert len(unpack_rows(packed, schema)) == len(days)
    else:
        with pytest.raises(TupleError) as refused:
            unpack_rows(packed, schema)
        assert refused.value.row == days.index("soon")
