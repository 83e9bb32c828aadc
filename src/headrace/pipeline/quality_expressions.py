"""Whether an expression of a rule can be used: it is parsed and analysed by Spark, over no rows."""

from __future__ import annotations

import json
import re
from typing import Any

from pyspark.errors import IllegalArgumentException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

# Catalyst takes these for deterministic, since they are the same for all rows of one query.
_TIME_AND_PLACE = ("Now", "LocalTimestamp", "SparkVersion")
_MOVING_DAYS = r"(?:now|today|tomorrow|yesterday)\b"
# Replaced by the parser, so that no tree shows it.
_MOVING_LITERAL = re.compile(rf"\b(?:date|timestamp\w*)\s*(['\"])\s*{_MOVING_DAYS}", re.IGNORECASE)
_ERROR_CLASS = re.compile(r"^\[[A-Z_.0-9]+\]\s*")
_NOT_REPEATABLE = "a replayed epoch has to judge the same"


def expression_problem(spark: SparkSession, expression: str, types: dict[str, str]) -> str:
    """What is wrong with it, as the end of a sentence that begins with the rule; else nothing."""
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
    """Those that are constants, which Spark compiles only when a row comes."""
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
    """By Java's own, since that is what will match."""
    context: Any = spark.sparkContext
    try:
        context._jvm.java.util.regex.Pattern.compile(regex)
    except IllegalArgumentException as error:  # as PySpark turns Java's into Python's
        return f"has a regex that is none: {first_line(error)} in {regex!r}"
    return ""


def first_line(error: Exception) -> str:
    """What Spark says, without its error's class and the plan that it prints."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return _ERROR_CLASS.sub("", lines[0]).rstrip(" ;")
