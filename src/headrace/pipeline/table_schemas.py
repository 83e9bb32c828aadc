"""The JSON schema of documents whose properties are the columns of a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import types as T

from headrace.errors import SchemaError
from headrace.model.collections import pointer_tokens

_WHOLE_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)


def json_schema_of(rows: T.StructType, key: Sequence[str], reduce: Mapping[str, str]) -> dict[str, Any]:
    """`reduce` has the strategies of columns; with any, documents are merged; else the last write wins."""
    unknown = [column for column in reduce if column not in rows.names]
    if unknown:
        raise SchemaError(f"`reduce` names {unknown[0]!r}, and the columns are {', '.join(rows.names)}")
    properties: dict[str, Any] = {}
    for field in rows.fields:
        properties[field.name] = _type(field.name, field.dataType)
        if field.name in reduce:
            properties[field.name]["reduce"] = {"strategy": reduce[field.name]}
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["required"] = [pointer_tokens(pointer)[0] for pointer in key]
    if reduce:
        schema["reduce"] = {"strategy": "merge"}
    return schema


def _type(name: str, kind: T.DataType) -> dict[str, Any]:
    match kind:
        case T.BooleanType():
            return {"type": "boolean"}
        case T.FloatType() | T.DoubleType():
            return {"type": "number"}
        case T.StringType():
            return {"type": "string"}
        case T.DateType():
            return {"type": "string", "format": "date"}
        case T.TimestampType() | T.TimestampNTZType():
            return {"type": "string", "format": "date-time"}
        case T.DecimalType():
            return {"type": "string", "format": f"decimal({kind.precision},{kind.scale})"}
        case T.ArrayType():
            return {"type": "array"}
        case T.StructType() | T.MapType():
            return {"type": "object"}
        case _ if isinstance(kind, _WHOLE_NUMBERS):
            return {"type": "integer"}
    raise SchemaError(f"column {name!r} is {kind.simpleString()}, which documents cannot hold: cast it")
