"""Rules of data quality as Spark expressions."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import reduce
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from headrace.errors import ConfigError
from headrace.model.field_types import FieldType, Kind
from headrace.pipeline.quality_expressions import expression_problem, regex_problem
from headrace.pipeline.rule_problems import convert, field_types, reserved_property, rule_problem
from headrace.pipeline.settings import Action, BindingSettings, Rule
from headrace.pipeline.spark_types import quote, spark_type


def column(name: str) -> Column:
    """Of a frame, whatever is in its name."""
    return F.col(quote(name))


def any_of(conditions: list[Column]) -> Column:
    return reduce(lambda left, right: left | right, conditions)


def is_wrong(rule: Rule, fields: dict[str, FieldType]) -> Column:
    """True for a row that breaks the rule, else false and never null. Not for `unique`."""
    if rule.not_null:
        return any_of([column(name).isNull() for name in rule.not_null])
    if rule.expression:
        return ~F.coalesce(F.expr(rule.expression), F.lit(False))
    value, field_type = column(rule.field), fields[rule.field]
    if rule.regex:
        broken = ~value.rlike(rule.regex)
    elif rule.in_set:
        broken = ~value.isin([_literal(member, field_type) for member in _members(rule)])
    else:
        broken = _is_outside(value, field_type, rule)
    return F.coalesce(broken, F.lit(False))


def _is_outside(value: Column, field_type: FieldType, rule: Rule) -> Column:
    outside = F.lit(False)
    if rule.minimum is not None:
        outside = outside | (value < _literal(rule.minimum, field_type, ROUND_CEILING))
    if rule.maximum is not None:
        outside = outside | (value > _literal(rule.maximum, field_type, ROUND_FLOOR))
    # Spark takes a NaN for the largest number of all.
    return outside | F.isnan(value) if field_type.kind is Kind.NUMBER else outside


def _members(rule: Rule) -> list[Any]:
    return [member for member in rule.in_set if member is not None]  # a null is right anyway


def _literal(value: Any, field_type: FieldType, rounding: str = "") -> Column:
    """Through text, since Python's dates reach Spark by way of the machine's own time zone."""
    converted = convert(value, field_type, rounding)
    if isinstance(converted, bool | int | float):
        return F.lit(converted).cast(spark_type(field_type))
    text = converted.isoformat() if isinstance(converted, date) else format(converted, "")
    return F.lit(text).cast(spark_type(field_type))


def check_rules(spark: SparkSession, binding: BindingSettings) -> None:
    """Refuses what would only be found out in the middle of an epoch; one sentence names the rule."""
    collection = binding.collection
    if name := reserved_property(collection):
        raise ConfigError(
            f"collection {collection.name!r} has a property {name!r}, which is a name of the pipeline's own: "
            "rename it"
        )
    if binding.invalid is Action.WARN:
        raise ConfigError(
            f"collection {collection.name!r}: a row that breaks its schema cannot go on with a warning: set "
            "invalid to drop or fail"
        )
    fields = field_types(collection)
    for index, rule in enumerate(binding.rules):
        which = f"rule {rule.name!r} of collection {collection.name!r}"
        problem = rule_problem(rule, fields, [other.name for other in binding.rules[:index]])
        if problem is not None:
            where = "".join(f"{part}: " for part in [".".join(map(str, problem.where))] if part)
            raise ConfigError(f"{which}: {where}{problem.sentence}")
        if said := _problem_in_spark(spark, rule, fields):
            raise ConfigError(f"{which} {said}")


def _problem_in_spark(spark: SparkSession, rule: Rule, fields: Mapping[str, FieldType]) -> str:
    if rule.regex:
        return regex_problem(spark, rule.regex)
    if rule.expression:
        types = {name: spark_type(field_type) for name, field_type in fields.items()}
        return expression_problem(spark, rule.expression, types)
    return ""
