"""Columns that both ways to combine begin and end with, and the JSON text of documents made of columns."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.model.collections import Collection
from headrace.model.field_types import Kind
from headrace.pipeline.combine.plan import Member


def key_names(collection: Collection) -> list[str]:
    return [f"k{index}" for index in range(len(collection.key_fields))]


def key_columns(collection: Collection) -> list[Column]:
    return [F.col(f"_key.{name}").alias(name) for name in key_names(collection)]


def finished(collection: Collection, values: Sequence[Column], document: Column | None) -> list[Column]:
    """The columns of a combined frame, over one that has a row for each key."""
    named = [column.alias(f"v{index}") for index, column in enumerate(values)]
    # Spark makes no struct of nothing in any other way.
    struct = F.struct(*named) if named else F.from_json(F.lit("{}"), StructType([]))
    return [
        F.struct(*key_names(collection)).alias("_key"),
        struct.alias("_values"),
        (F.lit(None).cast("string") if document is None else document).alias("_document"),
        F.col("_count"),
    ]


# Faster than a cast to string, and no matter what the session's time zone is.
_FORMATS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'", "timeZone": "UTC"}

# Up to this scale Java writes every decimal without an exponent, zero included.
_PLAIN_SCALE = 6


def refusal(pointer: str, sentence: str) -> Column:
    """Ends the job where it is evaluated, with a sentence of the kind that the reference has."""
    return F.raise_error(F.lit(f'at "{pointer}": {sentence}'))


def document_text(members: Sequence[tuple[Member, Column]]) -> Column:
    """An object of those members whose column is not null."""
    plain = [_plain(member, column) for member, column in members if member.type.kind is not Kind.JSON]
    embedded = [
        F.concat(F.lit(orjson.dumps(member.name).decode() + ":"), column)
        for member, column in members
        if member.type.kind is Kind.JSON
    ]
    if not plain:
        return F.concat(F.lit("{"), F.concat_ws(",", *embedded), F.lit("}"))
    text = F.to_json(F.struct(*plain), _FORMATS)
    if not embedded:
        return text
    # No plain value begins or ends with a brace, so this takes off one on each side and leaves the members.
    inside = F.array_remove(F.array(F.btrim(text, F.lit("{}"))), "")
    return F.concat(F.lit("{"), F.concat_ws(",", inside, *embedded), F.lit("}"))


def _plain(member: Member, column: Column) -> Column:
    match member.type.kind:
        case Kind.NUMBER:
            column = finite(member, column)
        case Kind.DECIMAL:
            column = decimal_text(member, column)
    return column.alias(member.name)


def finite(member: Member, column: Column) -> Column:
    """Refuses what would be written as a string."""
    odd = F.isnan(column) | (F.abs(column) == float("inf"))
    return F.when(odd, refusal(member.pointer, "NaN and infinity are no JSON numbers")).otherwise(column)


def decimal_text(member: Member, column: Column) -> Column:
    """Writes decimals in plain notation, with all the digits of the member's scale."""
    scale = member.type.scale
    if scale <= _PLAIN_SCALE:
        return column.cast("string")
    # A cast would use exponents unless Spark follows ANSI; this puts a comma after each third digit.
    return F.replace(F.format_number(column, scale), F.lit(","), F.lit(""))
