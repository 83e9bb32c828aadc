"""Converts values of JSON documents to Arrow columns of a field's type."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SchemaError
from headrace.model.collections import Field, pointer_tokens, value_at
from headrace.model.field_types import FieldType, Kind
from headrace.model.string_formats import comparable

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1


def extract(fields: Iterable[Field], documents: Sequence[Any]) -> pa.RecordBatch:
    """Returns one row per parsed document, with these fields as columns; refuses a value of another type."""
    chosen = list(fields)
    columns = [column_of(field, documents) for field in chosen]
    return pa.RecordBatch.from_arrays(columns, names=[field.name for field in chosen])


def column_of(field: Field, documents: Sequence[Any]) -> pa.Array:
    tokens = pointer_tokens(field.pointer)
    convert = _converter(field.type)
    values: list[Any] = []
    for document in documents:
        value = value_at(document, tokens)
        if value is None and field.required:
            raise SchemaError(f"field {field.name!r} is required and is missing or null in a document")
        try:
            values.append(None if value is None else convert(value))
        except (ValueError, TypeError, OverflowError):
            raise SchemaError(
                f"field {field.name!r} is {field.type}, and {_show(value)} is not one"
            ) from None
    try:
        return pa.array(values, type=field.type.arrow)
    except ValueError as error:  # text that is no Unicode, such as half of a surrogate pair
        raise SchemaError(f"field {field.name!r} cannot be stored: {error}") from None


def _show(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _converter(field_type: FieldType) -> Callable[[Any], Any]:
    if field_type.kind is Kind.DECIMAL:
        return lambda value: _decimal(value, field_type)
    return _CONVERTERS[field_type.kind]


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise TypeError
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError
    return float(value)


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _date(value: Any) -> date:
    parsed: date = comparable(Kind.DATE, _string(value))
    return parsed


def _date_time(value: Any) -> datetime:
    parsed: datetime = comparable(Kind.DATE_TIME, _string(value))
    return parsed.astimezone(UTC)


def _decimal(value: Any, field_type: FieldType) -> Decimal:
    parsed: Decimal = comparable(Kind.DECIMAL, _string(value))
    exponent = parsed.as_tuple().exponent
    assert isinstance(exponent, int)  # text in plain notation is never NaN or infinity
    if -exponent > field_type.scale:
        raise ValueError
    if parsed and parsed.adjusted() + 1 > field_type.precision - field_type.scale:
        raise ValueError
    return parsed


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()


_CONVERTERS: dict[Kind, Callable[[Any], Any]] = {
    Kind.BOOLEAN: _boolean,
    Kind.INTEGER: _integer,
    Kind.NUMBER: _number,
    Kind.STRING: _string,
    Kind.DATE: _date,
    Kind.DATE_TIME: _date_time,
    Kind.JSON: _json,
}


def decimal_text(column: pa.Array) -> pa.StringArray:
    """Writes decimals in plain notation, with all the digits of their scale."""
    text = column.cast(pa.string())
    if not pc.any(pc.match_substring(text, "E")).as_py():
        return text
    # Arrow turns to exponents for small fractions.
    return pa.array(
        [None if value is None else format(value, "f") for value in column.to_pylist()], pa.string()
    )
