"""Objects of one key become one by aggregates of what is inside of them.

In an aggregate a part's column keeps its name, and the text of an object is put together of them afterwards.
A row that does not fit ends the job where it is aggregated: a filter would be moved below what it looks at,
and do it all once more.
"""

from __future__ import annotations

import orjson
from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.model.field_types import Kind
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.combine_aggregates import append_of, first_or_last, sum_of
from headrace.pipeline.document_text import decimal_text
from headrace.pipeline.json_text import is_null, is_object, quoted
from headrace.pipeline.nested_objects import Part
from headrace.pipeline.spark_types import escaped

_IS_NULL, _IS_OBJECT = 1, 2
# Equal values of these may be spelled in several ways, and of equal ones the first is kept.
_SPELLED = (Kind.DATE_TIME, Kind.DECIMAL)


def reduced_parts(part: Part) -> list[Column]:
    """Aggregates of a part, under the names of their columns."""
    if not part.member.is_merged:
        return [_reduced(part).alias(part.column)]
    text = part.column
    kind = (
        f"max(case when {is_object(text)} then {_IS_OBJECT} when {is_null(text)} then {_IS_NULL}"
        f" when {text} is not null then {_refusal(part)} end)"
    )
    # Sorted by name and then by order of writing.
    entries = f"transform({part.others}, other -> struct(other.name, o, other.text))"
    others = f"array_sort(flatten(collect_list({entries}) FILTER (WHERE size({part.others}) > 0)))"
    inside = [column for below in part.inside for column in reduced_parts(below)]
    return [F.expr(kind).alias(part.column), F.expr(others).alias(part.others), *inside]


def merged_text(part: Part) -> str:
    """The JSON text of an object, of the aggregates of its parts; in SQL."""
    members = [
        f"concat('{escaped(orjson.dumps(below.member.name).decode())}:', {_text(below)})"
        for below in part.inside
    ]
    inside = ", ".join([*members, _others(part)])
    text = f"concat('{{', concat_ws(',', {inside}), '}}')"
    return f"case {part.column} when {_IS_OBJECT} then {text} when {_IS_NULL} then 'null' end"


def _text(part: Part) -> str:
    return merged_text(part) if part.member.is_merged else part.column


def _others(part: Part) -> str:
    """The members that the schema does not name: of each name the first, or the last."""
    step = "- 1" if part.member.others.strategy is Strategy.FIRST_WRITE_WINS else "+ 1"
    beside = f"get({part.others}, index {step}).name"
    chosen = f"filter({part.others}, (other, index) -> {beside} is null or {beside} <> other.name)"
    return f"transform({chosen}, other -> concat({quoted('other.name')}, ':', other.text))"


def _reduced(part: Part) -> Column:
    """JSON text. A null is a value to the first and the last write, to others only if there is no other."""
    member, name = part.member, part.column
    match member.strategy:
        case Strategy.FIRST_WRITE_WINS | Strategy.LAST_WRITE_WINS:
            return first_or_last(member.strategy, name)
        case Strategy.APPEND:
            return append_of(member, name)
        case Strategy.SUM:
            found = _sum(part)
        case _:
            found = _extreme(part)
    is_wrong = f"{name} is not null and {part.value} is null"
    null = f"max(case when {is_null(name)} then 'null' when {is_wrong} then {_refusal(part)} end)"
    return F.coalesce(found, F.expr(null))


def _extreme(part: Part) -> Column:
    least = part.member.strategy is Strategy.MINIMIZE
    name, value = part.column, part.value
    if part.member.type.kind not in _SPELLED:
        return F.expr(f"{'min_by' if least else 'max_by'}({name}, {value})")
    number = f"unix_micros({value})" if part.member.type.kind is Kind.DATE_TIME else value
    place = f"struct({number if least else f'-{number}'}, o)"
    return F.expr(f"min_by({name}, {place}) FILTER (WHERE {value} IS NOT NULL)")


def _sum(part: Part) -> Column:
    total = sum_of(part.member, F.col(part.value))
    if part.member.type.kind is not Kind.DECIMAL:
        return total.cast("string")
    alone = F.expr(f"max({part.column}) FILTER (WHERE {part.value} IS NOT NULL)")
    text = F.concat(F.lit('"'), decimal_text(part.member, total), F.lit('"'))
    # One alone keeps the digits that it came with.
    return F.when(F.count(part.value) == 1, alone).otherwise(text)


def _refusal(part: Part) -> str:
    wanted = "object" if part.member.is_merged else part.member.type
    sentence = f'at "{part.member.pointer}": `{part.member.strategy}` cannot take what is no {wanted}'
    return f"raise_error('{escaped(sentence)}')"
