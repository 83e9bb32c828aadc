"""The types that a field of a collection can have, and their Arrow form."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from headrace.errors import SchemaError

MAX_PRECISION = 38  # what Arrow's decimal128 and every endpoint of ours can hold
_DECIMAL = re.compile(r"decimal(?:\((\d+),\s*(\d+)\))?")


class Kind(StrEnum):
    BOOLEAN = "boolean"
    INTEGER = "integer"
    NUMBER = "number"
    STRING = "string"
    DATE = "date"
    DATE_TIME = "date-time"
    DECIMAL = "decimal"
    JSON = "json"


_ARROW = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.INTEGER: pa.int64(),
    Kind.NUMBER: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.DATE: pa.date32(),
    Kind.DATE_TIME: pa.timestamp("us", tz="UTC"),
    Kind.JSON: pa.string(),
}


@dataclass(frozen=True)
class FieldType:
    """A kind, with precision and scale for a decimal."""

    kind: Kind
    precision: int = 0
    scale: int = 0

    def __str__(self) -> str:
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})"
        return str(self.kind)

    @property
    def arrow(self) -> pa.DataType:
        if self.kind is Kind.DECIMAL:
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.kind]

    @property
    def can_be_key(self) -> bool:
        # Floats compare by rounding and JSON by spelling; neither identifies a document.
        return self.kind not in (Kind.NUMBER, Kind.JSON)

    def widens_to(self, wider: FieldType) -> bool:
        """Returns whether a column of this type, with its values, can become one of type `wider`.

        An integer beyond 2**53 is rounded in a column of numbers; its document keeps it.
        """
        match self.kind, wider.kind:
            case Kind.INTEGER, Kind.NUMBER | Kind.STRING:
                return True
            case Kind.INTEGER, Kind.DECIMAL:
                return wider.precision - wider.scale >= 19
            case Kind.DECIMAL, Kind.DECIMAL:
                return (
                    wider.scale >= self.scale
                    and wider.precision - wider.scale >= self.precision - self.scale
                    and wider != self
                )
            case ((Kind.DATE | Kind.DECIMAL), Kind.STRING):
                return True
        return False

    @staticmethod
    def parse(text: str) -> FieldType:
        """Parses the output of `str`."""
        if text.startswith(Kind.DECIMAL):
            return decimal_type(text)
        try:
            return FieldType(Kind(text))
        except ValueError:
            raise SchemaError(f"{text!r} is not a type of a field: {', '.join(Kind)}") from None


def decimal_type(text: str) -> FieldType:
    """Parses `decimal(p,s)`; `decimal` alone has the largest precision, and 9 fraction digits."""
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise SchemaError(f"format {text!r} is not a decimal: write it as decimal(18,2)")
    precision, scale = int(match[1] or MAX_PRECISION), int(match[2] or 9)
    if not (1 <= precision <= MAX_PRECISION and 0 <= scale <= precision):
        raise SchemaError(
            f"format {text!r} needs 1 <= precision <= {MAX_PRECISION} and 0 <= scale <= precision"
        )
    return FieldType(Kind.DECIMAL, precision, scale)


def type_of_schema(schema: Any) -> tuple[FieldType, bool]:
    """Returns the type of a location in a JSON schema, and whether it may be null."""
    if isinstance(schema, bool):  # a schema that everything follows, or nothing
        return FieldType(Kind.JSON), True
    if not isinstance(schema, Mapping):
        raise SchemaError(f"{schema!r} is not a JSON schema: that is an object, or true or false")
    declared = schema.get("type", [])
    listed = [declared] if isinstance(declared, str) else declared
    if not isinstance(listed, Sequence) or not all(isinstance(name, str) for name in listed):
        raise SchemaError(f"type {declared!r} is not a type of JSON schema, nor a list of them")
    names = set(listed)
    nullable = "null" in names or not names
    names.discard("null")
    if names == {"integer", "number"}:
        names = {"number"}
    if len(names) != 1:
        return FieldType(Kind.JSON), nullable
    (name,) = names
    if name == "string":
        return _string_type(str(schema.get("format", ""))), nullable
    if name in ("object", "array"):
        return FieldType(Kind.JSON), nullable
    if name not in (Kind.BOOLEAN, Kind.INTEGER, Kind.NUMBER):
        raise SchemaError(f"type {name!r} is not a type of JSON schema")
    return FieldType(Kind(name)), nullable


def _string_type(text_format: str) -> FieldType:
    if text_format in (Kind.DATE, Kind.DATE_TIME):
        return FieldType(Kind(text_format))
    if text_format.startswith(Kind.DECIMAL):
        return decimal_type(text_format)
    return FieldType(Kind.STRING)
