"""Frames of documents: the rows of one binding in one epoch, in the types that the collection's schema says.

A frame has a column for each property at the root of the schema, of one Spark type for each kind of field
(objects and arrays as JSON text; null where a document has no such member), and five of its own: the key, the
order in which rows were written, whether a row is valid by the schema, the names of what is wrong with it,
and the row as it was read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from headrace.errors import SchemaError
from headrace.model.collections import Collection, Field, pointer_tokens
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding
from headrace.pipeline.combine.nested import Part, wrong_inside
from headrace.pipeline.combine.plan import plan_of
from headrace.protocol.messages import RowLimits
from headrace.spark.json_text import STRING, has_half_characters, has_inexact_number
from headrace.spark.sql import escaped, is_utf8, quote, spark_type, value_of_text

# Spark would cut an instant off at its milliseconds, and spell it in the session's time zone.
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'",
    "timeZone": "UTC",
}

KEY, ORDER, VALID, INVALID, RAW = "_key", "_order", "_is_valid", "_invalid", "_raw"

_NESTED = (T.StructType, T.ArrayType, T.MapType)
_WHOLE_NUMBERS = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)
_SQL_OPTIONS = ", ".join(f"'{escaped(text)}'" for option in _JSON_OPTIONS.items() for text in option)
_SCALAR = rf"^\\s*(-?\\d+(\\.\\d+)?([eE][+-]?\\d+)?|true|false|{escaped(STRING)})\\s*\\z"


MakeFrame = Callable[[DataFrame], DataFrame]
"""Makes a frame of an epoch's rows. Its columns are made once: each is calls of Java, and epochs are many."""


def frame_of(
    collection: Collection,
    columns: dict[str, tuple[str, T.DataType]],
    order: Sequence[Column],
    raw: Column,
    wrong: Sequence[Column] = (),
    more: Column | None = None,
) -> MakeFrame:
    """`columns`: the SQL and the type of each property that the rows have; `wrong`: names that are null where
    nothing is; `more`: an array of such names, of which some may be found here as well."""
    values: dict[str, Column] = {}
    names = list(wrong)
    for name, field in collection.properties.items():
        if name not in columns:
            values[name] = F.lit(None).cast(spark_type(field.type))
            if field.required:
                names.append(F.lit(f"schema:{field.pointer}"))
            continue
        sql, kind = columns[name]
        value, doubt = _converted(field, sql, kind, collection.name)
        values[name] = F.expr(value)
        doubts = [doubt] if doubt else []
        if field.required:
            doubts.append(f"({value}) is null")
        if doubts:
            names.append(F.when(F.expr(" or ".join(doubts)), F.lit(f"schema:{field.pointer}")))
    found = F.concat(_array(names), more) if more is not None else _array(names)
    read = [
        *(value.alias(name) for name, value in values.items()),
        F.struct(*order).alias(ORDER),
        raw.alias(RAW),
        F.when(_any(names, more), found).alias(INVALID),
    ]
    key = [_key_value(field) for field in collection.key_fields]
    nested = [
        F.when(F.expr(sql).isNull(), F.lit(f"schema:{field.pointer}"))
        for sql, field in zip(key, collection.key_fields, strict=True)
        if len(pointer_tokens(field.pointer)) > 1
    ]
    is_wrong = F.col(INVALID).isNotNull() | _any(nested)
    found = F.concat(F.coalesce(INVALID, _array([])), _array(nested))
    inside = [F.expr(wrong_inside(part, quote(part.member.name))) for part in _merged(collection)]
    if inside:
        named = F.transform(F.concat(*inside), lambda pointer: F.concat(F.lit("schema:"), pointer))
        found = F.concat(found, named)
        is_wrong |= _any([], named)
    distinct = F.array_distinct(F.filter(found, lambda name: name.isNotNull()))
    judged = [
        *(F.col(quote(name)) for name in values),
        F.col(ORDER),
        F.col(RAW),
        F.coalesce(~is_wrong, F.lit(True)).alias(VALID),
        F.when(is_wrong, distinct).otherwise(_array([])).alias(INVALID),
        F.struct(*(F.expr(sql).alias(f"k{index}") for index, sql in enumerate(key))).alias(KEY),
    ]
    return lambda rows: rows.select(*read).select(*judged)


def _array(names: Sequence[Column]) -> Column:
    return F.array(*names) if names else F.array().cast("array<string>")


def _any(names: Sequence[Column], more: Column | None = None) -> Column:
    """Whether there is one that is not null.

    Nearly all rows have none, and then no array need be made, which Spark does not compile.
    """
    found = F.coalesce(*names).isNotNull() if names else F.lit(False)
    return found if more is None else found | F.exists(more, lambda name: name.isNotNull())


def _merged(collection: Collection) -> list[Part]:
    """The objects of which combining looks at what is inside, and so has to know that it fits."""
    plan = plan_of(collection.schema)
    merged = plan.merged if plan is not None else ()
    return [Part(member, f"_nested{index}") for index, member in enumerate(merged)]


def frame_of_columns(
    schema: T.StructType,
    collection: Collection,
    order: Sequence[str],
    *,
    unseen: Sequence[str] = (),
    breaks_ties: bool = False,
    is_ours: bool = False,
) -> MakeFrame:
    """Makes frames of rows whose columns are the properties; those that are `unseen` were not read.

    Without `breaks_ties` no two rows are equal in all columns of `order`. With it, two that are have an order
    all the same, and the same one when they are read again. Of what is ours, strings are known to be UTF-8:
    the server has looked at them.
    """
    columns = {field.name: (quote(field.name), field.dataType) for field in schema.fields}
    raw = F.to_json(
        F.struct(*(F.col(quote(name)) for name in schema.names if name not in unseen)), _JSON_OPTIONS
    )
    by = [F.col(quote(name)) for name in order]
    if breaks_ties:
        by.append(F.xxhash64(raw).alias("_tie"))
    texts = [quote(one.name) for one in schema.fields if isinstance(one.dataType, T.StringType)]
    read = [text for text in texts if text in map(quote, collection.properties) and not is_ours]
    wrong = [F.when(F.expr(f"not {is_utf8(text)}"), F.lit("encoding")) for text in read]
    return frame_of(collection, columns, by, raw, wrong)


def _converted(field: Field, sql: str, kind: T.DataType, collection: str) -> tuple[str, str]:
    """A value in the field's own type, and when it is wrong; both in SQL, the second empty if never."""
    target = spark_type(field.type)
    cast = f"try_cast({sql} as {target})"
    lost = f"({sql} is not null and {cast} is null)"
    match field.type.kind:
        case Kind.BOOLEAN if isinstance(kind, T.BooleanType):
            return sql, ""
        case Kind.INTEGER if isinstance(kind, _WHOLE_NUMBERS):
            return f"cast({sql} as bigint)", ""
        case Kind.INTEGER if isinstance(kind, T.FloatType | T.DoubleType | T.DecimalType):
            return cast, f"{lost} or {cast} <> {sql}"
        case Kind.NUMBER if isinstance(kind, T.NumericType):
            # Neither of the two is JSON.
            return cast, f"isnan({cast}) or abs({cast}) = double('infinity')"
        case Kind.STRING if isinstance(kind, T.StringType):
            return sql, ""
        case Kind.DATE if isinstance(kind, T.DateType):
            return sql, ""
        case Kind.DATE_TIME if isinstance(kind, T.TimestampType):
            return sql, ""
        case Kind.DATE_TIME if isinstance(kind, T.TimestampNTZType):
            # A cast alone would take it for a time of the session's zone.
            return f"cast(concat(cast({sql} as string), 'Z') as timestamp)", ""
        case Kind.DATE | Kind.DATE_TIME | Kind.DECIMAL if isinstance(kind, T.StringType):
            value = value_of_text(field.type, sql)
            return value, f"({sql} is not null and ({value}) is null)"
        case Kind.DECIMAL if isinstance(kind, T.DecimalType | T.LongType | T.IntegerType | T.ShortType):
            return cast, f"{lost} or {cast} <> {sql}"
        case Kind.JSON if isinstance(kind, _NESTED):
            return f"to_json({sql}, map({_SQL_OPTIONS}))", _has_odd_float(sql, kind)
        case Kind.JSON if isinstance(kind, T.StringType):
            return _json_text(sql)
        case Kind.JSON if isinstance(kind, T.NumericType | T.BooleanType):
            return f"cast({sql} as string)", ""
    raise SchemaError(
        f"collection {collection!r}: column {field.name!r} is {kind.simpleString()} and the schema says "
        f"{field.type}: change one of them"
    )


def _json_text(sql: str) -> tuple[str, str]:
    """Returns SQL for the one JSON value of a text, and for whether the text is anything else.

    Spark's function stops reading where the value ends, so what it read is taken, and not the text. From
    what is no object or array it would take the quotes off.
    """
    is_nested = f"ltrim({sql}) rlike '^[\\\\[{{]'"
    value = (
        f"case when trim({sql}) = 'null' then null when {is_nested} then get_json_object({sql}, '$')"
        f" when {sql} rlike '{_SCALAR}' then {sql} end"
    )
    is_none = f"({sql} is not null and trim({sql}) <> 'null' and ({value}) is null)"
    is_changed = f"{is_nested} and {has_inexact_number(sql)}"
    return value, f"{is_none} or {is_changed} or {has_half_characters(sql)}"


def _has_odd_float(sql: str, kind: T.DataType) -> str:
    """Whether a nested value has a NaN or an infinity, for which JSON has no number; empty if none can be."""
    match kind:
        case T.DoubleType() | T.FloatType():
            return f"(isnan({sql}) or abs({sql}) = double('infinity'))"
        case T.StructType():
            inside = [_has_odd_float(f"{sql}.{quote(one.name)}", one.dataType) for one in kind.fields]
            return " or ".join(filter(None, inside))
        case T.ArrayType():
            of_element = _has_odd_float("element", kind.elementType)
            return f"exists({sql}, element -> {of_element})" if of_element else ""
        case T.MapType():
            return _has_odd_float(f"map_values({sql})", T.ArrayType(kind.valueType))
    return ""


def _key_value(field: Field) -> str:
    """Returns a part of the key in SQL over a frame's columns."""
    root, *below = pointer_tokens(field.pointer)
    if not below:
        return quote(root)
    shape, path = "string", ""
    for token in reversed(below):
        shape, path = f"struct<{quote(token)}: {shape}>", f".{quote(token)}{path}"
    text = f"from_json({quote(root)}, '{escaped(shape)}'){path}"
    target = spark_type(field.type)
    return text if target == "string" else f"try_cast({text} as {target})"


def within_limits(make: MakeFrame, binding: Binding, limits: RowLimits) -> MakeFrame:
    """Marks rows that exceed the limits as invalid, under the name `endpoint:` and the field's pointer."""
    wrong: dict[str, str] = {}
    keys = {
        field.pointer: f"_key.k{index}"
        for index, field in enumerate(binding.keys)
        if field.type.kind is Kind.STRING
    }
    if limits.refuses_nul:
        values = {
            field.pointer: quote(field.name)
            for field in binding.values
            if field.type.kind is Kind.STRING and len(pointer_tokens(field.pointer)) == 1
        }
        wrong |= {pointer: f"contains({sql}, char(0))" for pointer, sql in {**keys, **values}.items()}
    if limits.max_key_bytes and keys:
        length = " + ".join(f"octet_length({sql})" for sql in keys.values())
        first, *_ = keys
        is_long = f"{length} > {limits.max_key_bytes}"
        wrong[first] = f"({wrong[first]} or {is_long})" if first in wrong else is_long
    if not wrong:
        return make
    is_wrong = F.coalesce(F.expr(" or ".join(wrong.values())), F.lit(False))
    names = [f"if({sql}, '{escaped(f'endpoint:{pointer}')}', null)" for pointer, sql in wrong.items()]
    named = F.concat(INVALID, F.expr(f"array_compact(array({', '.join(names)}))"))
    judged = {VALID: F.col(VALID) & ~is_wrong, INVALID: F.when(is_wrong, named).otherwise(F.col(INVALID))}
    return lambda rows: make(rows).withColumns(judged)
