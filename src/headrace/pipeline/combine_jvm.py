"""Documents of one key become one by Spark's own aggregates."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.model.collections import Collection, Field
from headrace.model.columns import INT64_MAX
from headrace.model.field_types import Kind
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.combine_frame import finished, key_columns, key_names
from headrace.pipeline.document_text import document_text, refusal
from headrace.pipeline.frames import quote
from headrace.pipeline.reduce_plan import Member, Plan

_BLANK = " \t\r\n"  # what JSON allows between tokens
_HALF = 32
_LOW_HALF = (1 << _HALF) - 1
_HIGHEST_HALF = INT64_MAX >> _HALF

_KEEPS_A_KEY = frozenset(
    {Strategy.FIRST_WRITE_WINS, Strategy.LAST_WRITE_WINS, Strategy.MINIMIZE, Strategy.MAXIMIZE}
)


def combine_in_jvm(
    frame: DataFrame, collection: Collection, plan: Plan, values: Sequence[Field]
) -> DataFrame:
    """As `combine`; the values are root properties or parts of the key."""
    columns = {member: f"c{index}" for index, member in enumerate(plan.members)}
    named = frame.select(
        *key_columns(collection),
        F.col("_order").alias("o"),
        *(F.col(quote(member.name)).alias(name) for member, name in columns.items()),
    )
    # By the key's parts: by the struct of them it takes half as long again.
    groups = named.groupBy(*key_names(collection))
    count = F.count(F.lit(1)).alias("_count")
    if plan.root is Strategy.MERGE:
        pointers = [field.pointer for field in collection.key_fields]
        in_key = dict(zip(pointers, key_names(collection), strict=True))
        reduced = [
            _merged(member, name, in_key).alias(f"r{index}")
            for index, (member, name) in enumerate(columns.items())
        ]
        combined = groups.agg(*reduced, count)
    else:
        winner = F.max_by if plan.root is Strategy.LAST_WRITE_WINS else F.min_by
        # A struct needs a member, and a schema may have no properties.
        whole = F.struct(F.lit(0).alias("c"), *columns.values())
        won = groups.agg(winner(whole, F.col("o")).alias("r"), count)
        kept = [F.col(f"r.{name}").alias(f"r{index}") for index, name in enumerate(columns.values())]
        combined = won.select(*key_names(collection), *kept, "_count")
    results = {member: F.col(f"r{index}") for index, member in enumerate(plan.members)}
    return finished(
        combined,
        collection,
        [_value(field, collection, results) for field in values],
        document_text(list(results.items())),
    )


def _value(field: Field, collection: Collection, results: dict[Member, Column]) -> Column:
    for member, column in results.items():
        if member.pointer == field.pointer:
            if member.type.kind is not Kind.JSON:
                return column
            # JSON's null is a value of a document but not of a column.
            return F.when(F.btrim(column, F.lit(_BLANK)) != "null", column)
    pointers = [key.pointer for key in collection.key_fields]
    return F.col(key_names(collection)[pointers.index(field.pointer)])


def _merged(member: Member, name: str, in_key: dict[str, str]) -> Column:
    if member.pointer in in_key and member.strategy in _KEEPS_A_KEY:
        return F.col(in_key[member.pointer])
    column = F.col(name)
    match member.strategy:
        case Strategy.FIRST_WRITE_WINS:
            return F.expr(f"min_by({name}, o) FILTER (WHERE {name} IS NOT NULL)")
        case Strategy.LAST_WRITE_WINS:
            return F.expr(f"max_by({name}, o) FILTER (WHERE {name} IS NOT NULL)")
        case Strategy.MINIMIZE:
            return F.min(column)
        case Strategy.MAXIMIZE:
            return F.max(column)
        case Strategy.APPEND:
            return _append(member, name)
    match member.type.kind:
        case Kind.INTEGER:
            return _sum_integers(member, column)
        case Kind.NUMBER:
            return _sum_numbers(member, column)
    return _sum_decimals(member, column)


def _sum_integers(member: Member, column: Column) -> Column:
    # Summed as two halves, neither of which can overflow with less than 2**31 documents of a key. So the
    # result does not depend on how Spark groups them, and no wider type is needed to find out if it fits.
    low = F.sum(column.bitwiseAND(F.lit(_LOW_HALF)))
    high = F.sum(F.shiftright(column, _HALF)) + F.shiftright(low, _HALF)
    total = F.shiftleft(high, _HALF).bitwiseOR(low.bitwiseAND(F.lit(_LOW_HALF)))
    fits = high.between(-_HIGHEST_HALF - 1, _HIGHEST_HALF)
    return (
        F.when(high.isNull(), F.lit(None))
        .when(fits, total)
        .otherwise(refusal(member.pointer, "the sum does not fit a 64-bit integer"))
    )


def _sum_numbers(member: Member, column: Column) -> Column:
    total = F.sum(column)
    odd = F.isnan(total) | (F.abs(total) == float("inf"))
    return F.when(odd, refusal(member.pointer, "the sum is not a finite number")).otherwise(total)


def _sum_decimals(member: Member, column: Column) -> Column:
    precision, scale = member.type.precision, member.type.scale
    # Null where 38 digits do not hold it, whether Spark follows ANSI or not.
    total = F.try_sum(column)
    largest = Decimal((0, (9,) * precision, -scale))
    sentence = f"the sum has more than {precision - scale} integer digits, so it is no {member.type}"
    return (
        F.when(F.count(column) == 0, F.lit(None))
        .when(F.abs(total) <= F.lit(largest), total.cast(f"decimal({precision},{scale})"))
        .otherwise(refusal(member.pointer, sentence))
    )


def _append(member: Member, name: str) -> Column:
    written = F.expr(f"sort_array(collect_list(struct(o, {name})) FILTER (WHERE {name} IS NOT NULL))")
    texts = F.transform(written, lambda entry: F.btrim(entry[name], F.lit(_BLANK)))
    arrays = F.filter(texts, lambda text: text != "null")
    items = F.transform(
        arrays, lambda text: F.btrim(text.substr(F.lit(2), F.length(text) - 2), F.lit(_BLANK))
    )
    joined = F.array_join(F.filter(items, lambda inside: inside != ""), ",")
    fit = F.forall(arrays, lambda text: F.startswith(text, F.lit("[")))
    return (
        F.when(F.size(texts) == 0, F.lit(None))
        .when(F.size(arrays) == 0, F.lit("null"))
        .when(F.size(arrays) == 1, F.get(arrays, 0))
        .when(fit, F.concat(F.lit("["), joined, F.lit("]")))
        .otherwise(refusal(member.pointer, "`append` cannot take what is no array"))
    )
