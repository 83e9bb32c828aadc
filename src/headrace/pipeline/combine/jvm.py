"""Documents of one key become one by Spark's own aggregates."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.model.collections import Collection, Field
from headrace.model.field_types import Kind
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.combine.aggregates import append_of, first_or_last, sum_of
from headrace.pipeline.combine.columns import document_text, finished, finite, key_columns, key_names
from headrace.pipeline.combine.nested import Part, merged_text, open_objects, reduced_parts
from headrace.pipeline.combine.plan import Member, Plan
from headrace.pipeline.sources.frames import ORDER, MakeFrame
from headrace.spark.json_text import BLANK
from headrace.spark.sql import quote

_KEEPS_A_KEY = frozenset(
    {Strategy.FIRST_WRITE_WINS, Strategy.LAST_WRITE_WINS, Strategy.MINIMIZE, Strategy.MAXIMIZE}
)


def combiner_in_jvm(
    collection: Collection, plan: Plan, values: Sequence[Field], with_document: bool
) -> MakeFrame:
    """Combines as `combiner` says; the values are root properties or parts of the key."""
    keys = key_names(collection)
    columns = {member: f"c{index}" for index, member in enumerate(plan.members)}
    named = [
        *key_columns(collection),
        F.col("_order").alias("o"),
        *(F.col(quote(member.name)).alias(name) for member, name in columns.items()),
    ]
    objects = {member: Part(member, columns[member]) for member in plan.merged}
    if plan.root is Strategy.MERGE:
        aggregates, results = _merge(collection, columns, objects)
    else:
        aggregates, results = _whole(plan.root, columns)
    members = {member: F.col(f"r{index}") for index, member in enumerate(plan.members)}
    if not with_document:
        members = _checked(members)
    chosen = [_value(field, collection, members) for field in values]
    result = finished(collection, chosen, document_text(list(members.items())) if with_document else None)
    aggregates.append(F.count(F.lit(1)).alias("_count"))

    def combine(frame: DataFrame) -> DataFrame:
        opened = open_objects(frame.select(*named), list(objects.values()))
        # By the key's parts: by the struct of them it takes half as long again.
        reduced = opened.groupBy(*keys).agg(*aggregates).select(*keys, *results, "_count")
        return reduced.select(*result)

    return combine


def candidates_in_jvm(collection: Collection, plan: Plan, values: Sequence[Field]) -> MakeFrame:
    """Makes what `candidates` says; the values are root properties or parts of the key."""
    columns = {member: f"c{index}" for index, member in enumerate(plan.members)}
    named = [
        *key_columns(collection),
        *(F.col(quote(member.name)).alias(name) for member, name in columns.items()),
        F.lit(1).cast("bigint").alias("_count"),
        F.col(ORDER),
    ]
    members = _checked({member: F.col(name) for member, name in columns.items()})
    result = finished(collection, [_value(field, collection, members) for field in values], None)
    return lambda frame: frame.select(*named).select(*result, ORDER)


def _checked(members: dict[Member, Column]) -> dict[Member, Column]:
    """Refuses numbers that a document's text would refuse, where no text is made."""
    numbers = [member for member in members if member.type.kind is Kind.NUMBER]
    return members | {member: finite(member, members[member]) for member in numbers}


def _merge(
    collection: Collection, columns: dict[Member, str], objects: dict[Member, Part]
) -> tuple[list[Column], list[Column]]:
    """The aggregates of members that are reduced one by one, and `r0`, `r1`, ... over them."""
    pointers = [field.pointer for field in collection.key_fields]
    in_key = dict(zip(pointers, key_names(collection), strict=True))
    reduced = [
        _merged(member, name, in_key).alias(name) for member, name in columns.items() if member not in objects
    ]
    inside = [column for part in objects.values() for column in reduced_parts(part)]
    results = [
        F.expr(merged_text(objects[member]) if member in objects else name).alias(f"r{index}")
        for index, (member, name) in enumerate(columns.items())
    ]
    return [*reduced, *inside], results


def _whole(root: Strategy, columns: dict[Member, str]) -> tuple[list[Column], list[Column]]:
    """Makes the aggregates and `r0`, `r1`, ... where one document wins with all that it has."""
    winner = F.max_by if root is Strategy.LAST_WRITE_WINS else F.min_by
    # A struct needs a member, and a schema may have no properties.
    whole = F.struct(F.lit(0).alias("c"), *columns.values())
    kept = [F.col(f"r.{name}").alias(f"r{index}") for index, name in enumerate(columns.values())]
    return [winner(whole, F.col("o")).alias("r")], kept


def _value(field: Field, collection: Collection, results: dict[Member, Column]) -> Column:
    for member, column in results.items():
        if member.pointer == field.pointer:
            if member.type.kind is not Kind.JSON:
                return column
            # JSON's null is a value of a document but not of a column.
            return F.when(F.btrim(column, F.lit(BLANK)) != "null", column)
    pointers = [key.pointer for key in collection.key_fields]
    return F.col(key_names(collection)[pointers.index(field.pointer)])


def _merged(member: Member, name: str, in_key: dict[str, str]) -> Column:
    if member.pointer in in_key and member.strategy in _KEEPS_A_KEY:
        return F.col(in_key[member.pointer])
    match member.strategy:
        case Strategy.MINIMIZE:
            return F.min(name)
        case Strategy.MAXIMIZE:
            return F.max(name)
        case Strategy.APPEND:
            return append_of(member, name)
        case Strategy.SUM:
            return sum_of(member, F.col(name))
    return first_or_last(member.strategy, name)
