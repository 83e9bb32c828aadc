"""Converts rows to packed tuples: the columns of a field's type to the few types that a tuple has.

Dates, instants and decimals are packed as text, in the one spelling whose bytes sort as the values do
(decimals excepted): `2026-11-15`, `2026-11-15T08:30:00.000000Z`, `12.50`.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import TupleError
from headrace.model.columns import decimal_text
from headrace.protocol import tuples

_DATE_FORMAT = "%Y-%m-%d"
# Arrow's %S prints a timestamp's fraction in its own unit: six digits for microseconds.
_INSTANT_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def pack_rows(rows: pa.RecordBatch) -> pa.BinaryArray:
    """Packs each row into one tuple."""
    return tuples.pack([to_tuple_type(column) for column in rows.columns])


def unpack_rows(packed: pa.BinaryArray, schema: pa.Schema) -> pa.RecordBatch:
    """Unpacks rows of this schema."""
    columns = tuples.unpack(packed, [tuple_type(field.type) for field in schema])
    read: list[pa.Array] = []
    for position, field in enumerate(schema):
        try:
            read.append(from_tuple_type(columns[position], field))
        except TupleError as error:
            before = [column.slice(error.row, 1) for column in columns[:position]]
            offset = len(tuples.pack(before)[0].as_py()) if before else 0
            raise TupleError(
                f"row {error.row}, byte {offset}: {error.message}", row=error.row, offset=offset
            ) from None
    return pa.RecordBatch.from_arrays(read, schema=schema)


def tuple_type(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_date(arrow) or pa.types.is_timestamp(arrow) or pa.types.is_decimal(arrow):
        return pa.string()
    return arrow


def to_tuple_type(column: pa.Array) -> pa.Array:
    if pa.types.is_date(column.type):
        return pc.strftime(column, format=_DATE_FORMAT)
    if pa.types.is_timestamp(column.type):
        return pc.strftime(column, format=_INSTANT_FORMAT)
    if pa.types.is_decimal(column.type):
        return decimal_text(column)
    return column


def from_tuple_type(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return _read(column, field.type)
    except pa.ArrowInvalid:
        raise _bad_text(column, field) from None


def _read(texts: pa.StringArray, arrow: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(arrow):
        # Arrow crashes on "1e-999999999", and rounds away fractions that are far longer than the scale.
        plain = pc.match_substring_regex(texts, _plain_decimal(arrow))
        if pc.any(pc.invert(plain)).as_py():
            raise pa.ArrowInvalid("not a decimal in plain notation")
    return texts.cast(arrow)


def _plain_decimal(arrow: pa.Decimal128Type) -> str:
    fraction = rf"(\.[0-9]{{1,{arrow.scale}}})?" if arrow.scale else ""
    return rf"^-?[0-9]{{1,{max(arrow.precision - arrow.scale, 1)}}}{fraction}$"


def _bad_text(column: pa.Array, field: pa.Field) -> TupleError:
    """Names the first row that cannot be parsed as the field's type, found by bisection."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            _read(column.slice(begin, middle - begin), field.type)
            begin = middle
        except pa.ArrowInvalid:
            end = middle
    text = str(column[begin].as_py())[:80]
    return TupleError(f"field {field.name!r} is {field.type}, and {text!r} is not one", row=begin)
