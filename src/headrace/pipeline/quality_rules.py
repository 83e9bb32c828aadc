"""Rules of data quality as Spark expressions, and what can be wrong with a rule itself."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from functools import reduce
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from headrace.errors import ConfigError
from headrace.model.collections import Collection
from headrace.model.columns import INT64_MAX, INT64_MIN
from headrace.model.field_types import FieldType, Kind
from headrace.model.string_formats import comparable
from headrace.pipeline.frames import quote, spark_type
from headrace.pipeline.quality_expressions import expression_problem, regex_problem
from headrace.pipeline.settings import Action, BindingSettings, Rule

RESERVED = (
    *("_key", "_order", "_invalid", "_raw", "_failed", "_warned"),
    *("_number", "_parsed", "_corrupt", "_values", "_document", "_count"),
)
"""Columns of a frame that are no fields."""
INVALID_PREFIX = "schema:"
"""Of the names by which a frame says what is wrong with a row by its schema."""

INVALID_NAMES = ("json",)
"""The others of these names."""

_WITHOUT_RANGE = (Kind.BOOLEAN, Kind.JSON)
_EXACT = Context(prec=80)


class _Unfit(ValueError):
    """A limit or a member of a set that no value of the field's type can be; says why."""


def column(name: str) -> Column:
    """Of a frame, whatever is in its name."""
    return F.col(quote(name))


def field_types(collection: Collection) -> dict[str, FieldType]:
    """Of the properties at the root of the schema, which are what rules speak of."""
    return {name: field.type for name, field in collection.properties.items()}


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
    converted = _convert(value, field_type, rounding)
    if isinstance(converted, bool | int | float):
        return F.lit(converted).cast(spark_type(field_type))
    text = converted.isoformat() if isinstance(converted, date) else format(converted, "")
    return F.lit(text).cast(spark_type(field_type))


def _convert(value: Any, field_type: FieldType, rounding: str) -> Any:
    """As the field's type has it. A limit between two values of the type is moved to the next one inside."""
    match field_type.kind:
        case Kind.BOOLEAN if isinstance(value, bool):
            return value
        case Kind.STRING if isinstance(value, str):
            return value
        case Kind.INTEGER:
            return int(_round(_number(value), 0, rounding, INT64_MIN, INT64_MAX))
        case Kind.NUMBER:
            return float(_number(value))
        case Kind.DECIMAL:
            most = _EXACT.scaleb(Decimal(10**field_type.precision - 1), -field_type.scale)
            return _round(_number(value), field_type.scale, rounding, -most, most)
        case Kind.DATE:
            if isinstance(value, date) and not isinstance(value, datetime):
                return value
            return _parsed(Kind.DATE, value)
        case Kind.DATE_TIME:
            moment = value if isinstance(value, datetime) else _parsed(Kind.DATE_TIME, value)
            return moment.replace(tzinfo=moment.tzinfo or UTC).astimezone(UTC)
    raise _Unfit(f"is not a {field_type}")


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        raise _Unfit("is not a number")
    if isinstance(value, float) and not math.isfinite(value):
        raise _Unfit("is not a number that can be compared with")
    try:
        # By its shortest spelling, which is what the user wrote.
        return comparable("decimal", value) if isinstance(value, str) else Decimal(str(value))
    except ValueError:
        raise _Unfit("is not a number in plain notation") from None


def _round(value: Decimal, scale: int, rounding: str, least: Decimal | int, most: Decimal | int) -> Decimal:
    if not least <= value <= most:
        raise _Unfit(f"is beyond what the field can hold, {least} to {most}")
    rounded = value.quantize(Decimal(1).scaleb(-scale), rounding or ROUND_FLOOR, _EXACT)
    if not rounding and rounded != value:
        raise _Unfit(f"has more than {scale} fraction digits, and so has no value of the field")
    return rounded


def _parsed(kind: Kind, value: Any) -> Any:
    try:
        return comparable(kind, value if isinstance(value, str) else str(value))
    except ValueError as error:
        raise _Unfit(f"is no {kind}: {error}") from None


def check_rules(spark: SparkSession, binding: BindingSettings) -> None:
    """Refuses what would only be found out in the middle of an epoch; one sentence names the rule."""
    fields = field_types(binding.collection)
    for name in fields:
        if name.lower() in RESERVED:  # Spark does not look at the case of a name
            raise ConfigError(
                f"collection {binding.collection.name!r} has a property {name!r}, which is a name of the "
                "pipeline's own: rename it"
            )
    if binding.invalid is Action.WARN:
        raise ConfigError(
            f"collection {binding.collection.name!r}: a row that breaks its schema cannot go on with a "
            "warning: set invalid to drop or fail"
        )
    seen: set[str] = set()
    for rule in binding.rules:
        problem = _name_problem(rule, seen) or _problem(spark, rule, fields)
        if problem:
            raise ConfigError(f"rule {rule.name!r} of collection {binding.collection.name!r} {problem}")
        seen.add(rule.name)


def _name_problem(rule: Rule, seen: set[str]) -> str:
    if not rule.name:
        return "has no name: give it one, by which its dead letters are found"
    if rule.name in seen:
        return "is there twice: rename one"
    if rule.name.startswith(INVALID_PREFIX) or rule.name in INVALID_NAMES:
        return "has the name of something that is wrong by the schema: rename it"
    return ""


def _problem(spark: SparkSession, rule: Rule, fields: dict[str, FieldType]) -> str:
    has_range = rule.minimum is not None or rule.maximum is not None
    checks = {
        "not_null": bool(rule.not_null),
        "minimum or maximum": has_range,
        "regex": bool(rule.regex),
        "in_set": bool(rule.in_set),
        "unique": bool(rule.unique),
        "expression": bool(rule.expression),
    }
    given = [name for name, is_given in checks.items() if is_given]
    if len(given) != 1:
        return f"has {' and '.join(given) or 'no check'}: give it exactly one of {', '.join(checks)}"
    if rule.expression:
        types = {name: spark_type(field_type) for name, field_type in fields.items()}
        return expression_problem(spark, rule.expression, types)
    for name in rule.not_null or rule.unique or (rule.field,):
        if name not in fields:
            known = ", ".join(fields)
            return f"is about the field {name!r}, which the schema does not have; it has {known}"
    return "" if rule.not_null or rule.unique else _value_problem(spark, rule, fields[rule.field])


def _value_problem(spark: SparkSession, rule: Rule, field_type: FieldType) -> str:
    of_field = f"the field {rule.field!r}, which is {field_type}"
    if rule.regex:
        if field_type.kind not in (Kind.STRING, Kind.JSON):
            return f"has a regex for {of_field}: it needs text, so write an expression"
        return regex_problem(spark, rule.regex)
    if field_type.kind is Kind.JSON or (not rule.in_set and field_type.kind in _WITHOUT_RANGE):
        check = "a set" if rule.in_set else "a range"
        return f"has {check} for {of_field} and has none: write an expression"
    limits = [(rule.minimum, ROUND_CEILING), (rule.maximum, ROUND_FLOOR)]
    values = [(member, "") for member in _members(rule)] or [pair for pair in limits if pair[0] is not None]
    converted = []
    for value, rounding in values:
        try:
            converted.append(_convert(value, field_type, rounding))
        except _Unfit as error:
            return f"compares {of_field}, with {value!r}, which {error}"
    if rule.minimum is not None and rule.maximum is not None and converted[0] > converted[1]:
        return f"wants {of_field}, from {rule.minimum!r} to {rule.maximum!r}, and nothing is between them"
    return ""
