"""From rows of a Spark frame to the keys and values of messages."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigError, SchemaError
from headrace.sinks.kafka_options import TopicOptions, ValueFormat

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, StructField

KEY, VALUE = "key", "value"

_FORMATS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC"}
_PLAIN_SCALE = 6  # up to this Java writes every decimal without an exponent
_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WHOLE_NUMBERS = ("tinyint", "smallint", "int", "bigint")
_AVRO = {
    "boolean": "boolean",
    "tinyint": "int",
    "smallint": "int",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
}


def value_fields(rows: DataFrame, hidden: Sequence[str]) -> list[StructField]:
    """Of the columns that go into values: all but `hidden`."""
    return [field for field in rows.schema.fields if field.name not in hidden]


def messages(rows: DataFrame, fields: Sequence[StructField], options: TopicOptions) -> DataFrame:
    """A column for the key's text and one for the value: JSON, or a struct for tasks to write as Avro."""
    from pyspark.sql import functions as F

    by_name = {field.name: field for field in fields}
    for name in options.key:
        if name not in by_name:
            raise ConfigError(f"the option key names {name!r}, which is no column of the rows")
    key = _key([by_name[name] for name in options.key])
    if options.value_format is ValueFormat.AVRO:
        value = F.struct(*(_column(field) for field in fields))
    else:
        value = _json(fields)
    return _by_shard(rows.select(key.alias(KEY), value.alias(VALUE)), options)


def _by_shard(made: DataFrame, options: TopicOptions) -> DataFrame:
    """A partition for each shard, or fewer: those are the first ones."""
    if options.key and not options.has_own_keys:
        return made.repartition(options.shards, KEY)
    if options.shards < made.sparkSession.sparkContext.defaultParallelism:
        # To coalesce would have the rows made by as few tasks as send them.
        return made.repartition(options.shards)
    return made.coalesce(options.shards)


def avro_schema(fields: Sequence[StructField], options: TopicOptions) -> dict[str, Any]:
    """Every field may be null, and is if it is not there: so who has a later one reads the earlier too."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", options.topic)
    return _record(fields, name if _AVRO_NAME.fullmatch(name) else f"_{name}")


def avro_text(schema: Mapping[str, Any]) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _column(field: StructField) -> Column:
    from pyspark.sql import functions as F

    return F.col("`" + field.name.replace("`", "``") + "`")


def _key(fields: Sequence[StructField]) -> Column:
    """The plain text of one column; a JSON object of several."""
    from pyspark.sql import functions as F

    if not fields:
        return F.lit(None).cast("string")
    if len(fields) > 1:
        return _json(fields)
    (field,) = fields
    if field.dataType.simpleString() == "string":
        return _column(field)
    if field.dataType.simpleString() in _WHOLE_NUMBERS:
        return _column(field).cast("string")
    return F.get_json_object(F.to_json(F.struct(_plain(field).alias("key")), _FORMATS), "$.key")


def _json(fields: Sequence[StructField]) -> Column:
    """An object of what is not null, as documents have it: dates, instants and decimals are text."""
    from pyspark.sql import functions as F

    return F.to_json(F.struct(*(_plain(field).alias(field.name) for field in fields)), _FORMATS)


def _plain(field: StructField) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql.types import DecimalType, DoubleType, FloatType

    column = _column(field)
    if isinstance(field.dataType, DoubleType | FloatType):
        odd = F.isnan(column) | (F.abs(column) == float("inf"))
        said = f"column {field.name!r}: NaN and infinity are no JSON numbers"
        return F.when(odd, F.raise_error(F.lit(said)).cast(field.dataType)).otherwise(column)
    if isinstance(field.dataType, DecimalType):
        if field.dataType.scale <= _PLAIN_SCALE:
            return column.cast("string")
        # A cast would use exponents; this puts a comma after each third digit.
        return F.replace(F.format_number(column, field.dataType.scale), F.lit(","), F.lit(""))
    return column


def _record(fields: Sequence[StructField], name: str) -> dict[str, Any]:
    for field in fields:
        if not _AVRO_NAME.fullmatch(field.name):
            raise SchemaError(
                f"Avro has no field {field.name!r}: letters, digits and _ make a name; rename the column, or "
                "set value_format to json"
            )
    return {
        "type": "record",
        "name": name,
        "fields": [
            {
                "name": field.name,
                "type": ["null", _avro(field.dataType, f"{name}_{field.name}")],
                "default": None,
            }
            for field in fields
        ],
    }


def _avro(kind: DataType, name: str) -> Any:
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if isinstance(kind, StructType):
        return _record(kind.fields, name)
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": ["null", _avro(kind.elementType, name)]}
    if isinstance(kind, MapType) and kind.keyType.simpleString() == "string":
        return {"type": "map", "values": ["null", _avro(kind.valueType, name)]}
    if kind.simpleString() not in _AVRO:
        raise SchemaError(f"Avro has no type for {kind.simpleString()} ({name}): set value_format to json")
    return _AVRO[kind.simpleString()]
