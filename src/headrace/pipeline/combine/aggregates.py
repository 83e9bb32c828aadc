"""The aggregates of single columns, by the strategy that reduces them.

In a group `o` is the order of its rows. Columns are given by name, as only SQL can filter what is aggregated.
"""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.model.columns import INT64_MAX
from headrace.model.field_types import Kind
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.combine.columns import refusal
from headrace.pipeline.combine.plan import Member
from headrace.spark.json_text import BLANK

_HALF = 32
_LOW_HALF = (1 << _HALF) - 1
_HIGHEST_HALF = INT64_MAX >> _HALF


def first_or_last(strategy: Strategy, name: str) -> Column:
    """The value of the column that was written first, or last, of those that are not null."""
    chosen = "min_by" if strategy is Strategy.FIRST_WRITE_WINS else "max_by"
    return F.expr(f"{chosen}({name}, o) FILTER (WHERE {name} IS NOT NULL)")


def sum_of(member: Member, column: Column) -> Column:
    """Sums values that are in the member's own type."""
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


def append_of(member: Member, name: str) -> Column:
    """Appends arrays that are JSON text, in the order of writing."""
    written = F.expr(f"sort_array(collect_list(struct(o, {name})) FILTER (WHERE {name} IS NOT NULL))")
    texts = F.transform(written, lambda entry: F.btrim(entry[name], F.lit(BLANK)))
    arrays = F.filter(texts, lambda text: text != "null")
    items = F.transform(arrays, lambda text: F.btrim(text.substr(F.lit(2), F.length(text) - 2), F.lit(BLANK)))
    joined = F.array_join(F.filter(items, lambda inside: inside != ""), ",")
    fit = F.forall(arrays, lambda text: F.startswith(text, F.lit("[")))
    return (
        F.when(F.size(texts) == 0, F.lit(None))
        .when(F.size(arrays) == 0, F.lit("null"))
        .when(F.size(arrays) == 1, F.get(arrays, 0))
        .when(fit, F.concat(F.lit("["), joined, F.lit("]")))
        .otherwise(refusal(member.pointer, "`append` cannot take what is no array"))
    )
