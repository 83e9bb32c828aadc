"""The columns of a place: what they are, and how they may change.

A type is written as Spark's JSON has it, which is also what Delta's log has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import SchemaError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Columns = Mapping[str, Any]
"""The type of each, by its name."""

_FLAT = {
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "date": pa.date32(),
    "double": pa.float64(),
    "float": pa.float32(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "short": pa.int16(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def columns_of(rows: DataFrame) -> Columns:
    return columns_from(rows.schema.jsonValue())


def columns_from(struct: Mapping[str, Any]) -> Columns:
    """Of a schema as JSON."""
    return {field["name"]: _nullable(field["type"]) for field in struct["fields"]}


def as_struct(columns: Columns) -> dict[str, Any]:
    """A schema as JSON, in which everything may be null."""
    return {"type": "struct", "fields": [_field(*column) for column in columns.items()]}


def grown(known: Columns, new: Columns, where: str) -> Columns:
    """What a place has once rows with these columns are in it; refuses a column that is not what it was."""
    by_lower = {name.lower(): name for name in known}
    for name, kind in new.items():
        before = by_lower.setdefault(name.lower(), name)
        if before != name:
            raise SchemaError(
                f"{where} has a column {before!r}, and {name!r} differs in case only: rename it"
            )
        if name in known and known[name] != kind:
            raise SchemaError(
                f"{where} has the column {name!r} as {_shown(known[name])}, and it comes as {_shown(kind)}: "
                "give it another name, or choose another place"
            )
    return {**known, **new}


def arrow_type(kind: Any) -> pa.DataType:
    if isinstance(kind, str):
        if decimal := _DECIMAL.fullmatch(kind):
            return pa.decimal128(int(decimal[1]), int(decimal[2]))
        if kind not in _FLAT:
            raise SchemaError(f"columns of type {kind} cannot be kept: leave them out, or cast them")
        return _FLAT[kind]
    match kind["type"]:
        case "array":
            return pa.list_(arrow_type(kind["elementType"]))
        case "map":
            return pa.map_(arrow_type(kind["keyType"]), arrow_type(kind["valueType"]))
        case _:
            return pa.struct([(field["name"], arrow_type(field["type"])) for field in kind["fields"]])


def _nullable(kind: Any) -> Any:
    """The same type wherever null was not expected."""
    if not isinstance(kind, Mapping):
        return kind
    match kind["type"]:
        case "struct":
            fields = [_field(field["name"], _nullable(field["type"])) for field in kind["fields"]]
            return {"type": "struct", "fields": fields}
        case "array":
            element = _nullable(kind["elementType"])
            return {"type": "array", "elementType": element, "containsNull": True}
        case "map":
            inner = {name: _nullable(kind[name]) for name in ("keyType", "valueType")}
            return {"type": "map", **inner, "valueContainsNull": True}
        case _:
            raise SchemaError(f"columns of type {kind['type']} cannot be kept: leave them out, or cast them")


def _field(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _shown(kind: Any) -> str:
    return kind if isinstance(kind, str) else str(kind["type"])
