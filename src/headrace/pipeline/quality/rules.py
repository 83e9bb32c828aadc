"""Rules of data quality as Spark expressions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import reduce
from typing import Any

from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from headrace.errors import ConfigError
from headrace.model.field_types import FieldType, Kind
from headrace.pipeline.quality.problems import convert, field_types, reserved_property, rule_problem
from headrace.pipeline.settings import Action, BindingSettings, Rule
from headrace.spark.sql import quote, spark_type


def column(name: str) -> Column:
    """Returns a column of a frame, whatever is in its name."""
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


# Catalyst takes these for deterministic, since they are the same for all rows of one query.
_TIME_AND_PLACE = ("Now", "LocalTimestamp", "SparkVersion")
_MOVING_DAYS = r"(?:now|today|tomorrow|yesterday)\b"
# Replaced by the parser, so that no tree shows it.
_MOVING_LITERAL = re.compile(rf"\b(?:date|timestamp\w*)\s*(['\"])\s*{_MOVING_DAYS}", re.IGNORECASE)
_ERROR_CLASS = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_NOT_REPEATABLE = "a replayed epoch has to judge the same"


def expression_problem(spark: SparkSession, expression: str, types: dict[str, str]) -> str:
    """Says what is wrong with it, as the end of a sentence that begins with the rule; else nothing."""
    schema = ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in types.items())
    if _MOVING_LITERAL.search(expression):
        return f"has an expression that depends on the time, and {_NOT_REPEATABLE}: compare fields"
    try:
        judged = spark.createDataFrame([], schema).select(F.expr(expression))
    except PySparkException as error:
        return f"has an expression that Spark refuses: {first_line(error)}"
    if len(judged.columns) != 1:
        return "has an expression with a star: name the fields"
    plan: Any = judged._jdf.queryExecution().analyzed()
    problem = _tree_problem(spark, plan)
    if problem:
        return problem
    found = judged.schema[0].dataType
    if not isinstance(found, BooleanType):
        return f"has an expression that is {found.simpleString()}: write one that is true or false"
    return ""


def _tree_problem(spark: SparkSession, plan: Any) -> str:
    nodes = json.loads(plan.expressions().apply(0).toJSON())
    names = {node["class"].rsplit(".", 1)[-1].rstrip("$") for node in nodes}
    if any(name.endswith("Subquery") or name in ("Exists", "ListQuery") for name in names):
        return "has an expression with a subquery: compare fields of the row"
    if plan.nodeName() != "Project" or plan.child().children().size():
        return "has an expression with an aggregate, a window or a generator: compare fields of the row"
    is_fixed = plan.expressions().apply(0).deterministic()
    if not is_fixed or any(name.startswith("Current") or name in _TIME_AND_PLACE for name in names):
        return f"has an expression that is not the same each time, and {_NOT_REPEATABLE}: compare fields"
    for regex in _regexes(nodes):
        problem = regex_problem(spark, regex)
        if problem:
            return problem
    texts = [str(node.get("value")).strip() for node in nodes if node.get("dataType") == "string"]
    casts = {str(node.get("dataType")) for node in nodes if node["class"].endswith(".Cast")}
    if casts & {"date", "timestamp", "timestamp_ntz"}:
        for text in texts:
            if re.match(_MOVING_DAYS, text, re.IGNORECASE):
                return (
                    f"has an expression that reads {text!r} as a time, and {_NOT_REPEATABLE}: compare fields"
                )
    return ""


def _regexes(nodes: list[dict[str, Any]]) -> list[str]:
    """Finds the patterns that are constants, which Spark compiles only when a row comes."""
    found: list[str] = []

    def walk(place: int) -> int:
        """The place after the node that is at this one, with all below it: parents come first."""
        node, children = nodes[place], []
        after = place + 1
        for _ in range(node["num-children"]):
            children.append(nodes[after])
            after = walk(after)
        name = node["class"].rsplit(".", 1)[-1]
        if (name == "RLike" or name.startswith("RegExp")) and children[1].get("value") is not None:
            found.append(str(children[1]["value"]))
        return after

    walk(0)
    return found


def regex_problem(spark: SparkSession, regex: str) -> str:
    """Compiles the pattern with Java, since that is what will match."""
    context: Any = spark.sparkContext
    try:
        context._jvm.java.util.regex.Pattern.compile(regex)
    except IllegalArgumentException as error:  # as PySpark turns Java's into Python's
        return f"has a regex that is none: {first_line(error)} in {regex!r}"
    return ""


def first_line(error: Exception) -> str:
    """Returns what Spark says, without its error's class and the plan that it prints."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return _ERROR_CLASS.sub("", lines[0]).rstrip(" ;")
