"""Documents that come as JSON text, such as the values of a Kafka topic.

A document has the members that the collection's schema names; others are not read. A member that is null is
missing. What would become something else is invalid: bytes that are no UTF-8, escapes of half a character,
and numbers inside of objects and arrays that a double cannot hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import SchemaError
from headrace.model.collections import Collection
from headrace.model.field_types import FieldType, Kind
from headrace.pipeline.sources.frames import MakeFrame, frame_of
from headrace.spark.json_text import (
    has_half_characters,
    is_changed,
    with_empty_strings,
    with_marked_numbers,
)
from headrace.spark.sql import escaped, is_utf8, quote

_PARSED, _CORRUPT = "_parsed", "_corrupt"
_READ_AS: dict[Kind, T.DataType] = {
    Kind.BOOLEAN: T.BooleanType(),
    Kind.INTEGER: T.LongType(),
    Kind.NUMBER: T.DoubleType(),
}


def frame_of_json(collection: Collection) -> MakeFrame:
    """Makes frames of rows with the columns `value` (bytes), `partition` and `offset`."""
    fields = collection.properties
    for name, field in fields.items():
        _refuse_strings_among_others(collection, name, field.type)
    schema = T.StructType(
        [T.StructField(name, _READ_AS.get(field.type.kind, T.StringType())) for name, field in fields.items()]
    )
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT, "allowSingleQuotes": "false"}
    parsed = F.from_json("value", schema.add(_CORRUPT, T.StringType()), options)
    # Spark reads the first value of a text, and would leave unsaid what comes after it.
    alone = F.json_array_length(F.concat(F.lit("["), F.col("value"), F.lit("]"))) == 1
    is_object = F.col("value").rlike(r"^\s*\{") & alone
    columns = {
        field.name: (f"{_PARSED}.{quote(field.name)}", field.dataType)
        for field in schema.fields
        if field.name != _CORRUPT
    }
    is_no_text = F.expr(f"not {is_utf8('value')} or {has_half_characters('value')}")
    is_no_json = ~F.coalesce(is_object, F.lit(False)) | F.col(f"{_PARSED}.{_CORRUPT}").isNotNull()
    # What is no text is kept as its bytes: another text would be somebody else's row when it is replayed.
    as_bytes = F.to_json(F.struct(F.base64(F.col("value").cast("binary")).alias("base64")))
    make = frame_of(
        collection,
        columns,
        [F.col("partition"), F.col("offset")],
        F.when(F.expr(f"not {is_utf8('value')}"), as_bytes).otherwise(F.coalesce("value", F.lit("null"))),
        [F.when(is_no_text, F.lit("encoding")), F.when(is_no_json, F.lit("json"))],
        _other_types(collection),
    )
    text = F.col("value").cast("string")
    return lambda rows: make(rows.withColumn("value", text).withColumn(_PARSED, parsed))


def _other_types(collection: Collection) -> Column | None:
    """Names of what should be a string and is none, or is one and should not be: Spark reads both as text.

    And of objects and arrays in which Spark writes another number than it has read.
    """
    read = {name: field for name, field in collection.properties.items() if field.type.kind not in _READ_AS}
    if not read:
        return None
    shape = escaped(", ".join(f"{quote(name)} string" for name in read))
    empty = with_empty_strings("value")
    if any(field.type.kind is Kind.JSON for field in read.values()):
        empty = with_marked_numbers(empty)
    found = []
    for name, field in read.items():
        value = f"empty.{quote(name)}"
        is_wrong = (
            f"{value} = '' or {is_changed(value)}" if field.type.kind is Kind.JSON else f"{value} <> ''"
        )
        found.append(f"if({is_wrong}, '{escaped(f'schema:{field.pointer}')}', null)")
    # In one expression, so that it is read once.
    read_once = f"array(from_json({empty}, '{shape}', map('allowSingleQuotes', 'false')))"
    return F.expr(f"get(transform({read_once}, empty -> array({', '.join(found)})), 0)")


def _refuse_strings_among_others(collection: Collection, name: str, kind: FieldType) -> None:
    """Spark reads `"1"` and `1` as one text, so what they were could not be told."""
    if kind.kind is not Kind.JSON:
        return
    declared: Any = collection.schema["properties"][name]
    types = declared.get("type") if isinstance(declared, Mapping) else None
    listed = {types} if isinstance(types, str) else set(types or ["string"])
    if "string" in listed:
        raise SchemaError(
            f"collection {collection.name!r}: property {name!r} may be a string or something else, which "
            "cannot be told apart in JSON from Kafka: give it one type"
        )
