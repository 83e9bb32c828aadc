"""What is wrong with a rule of quality, as far as that can be told without Spark.

A pipeline checks its rules again with Spark, which alone knows SQL and Java's regular expressions. So what is
refused here is only what is wrong whatever Spark says.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from headrace.config.collections import RangeConfig, RuleConfig
from headrace.config.reading import Wrong
from headrace.ingest.yaml_files import KeyPath
from headrace.model.collections import Collection, pointer_tokens
from headrace.model.field_types import FieldType, Kind
from headrace.model.string_formats import comparable

_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.DECIMAL)
_WANTED = {
    **dict.fromkeys(_NUMBERS, "a number"),
    Kind.STRING: "text, in quotes",
    Kind.DATE: "a date, such as 2026-11-15",
    Kind.DATE_TIME: "a time, such as 2026-11-15T08:30:00Z",
    Kind.BOOLEAN: "true or false",
}
_WRONG_IN_JAVA_TOO = (
    "unterminated character set",
    "missing ), unterminated subpattern",
    "unbalanced parenthesis",
    "bad character range",
)


def check_rules(at: KeyPath, rules: Sequence[RuleConfig], collection: Collection) -> None:
    """Raises `Wrong` for the first thing that is."""
    fields = {
        field.name: field.type for field in collection.fields if len(pointer_tokens(field.pointer)) == 1
    }
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        if rule.name in seen:
            raise Wrong((*at, index, "name"), f"another rule has the name {rule.name!r} too: rename one")
        seen.add(rule.name)
        _check_rule((*at, index), rule, fields)


def _check_rule(at: KeyPath, rule: RuleConfig, fields: dict[str, FieldType]) -> None:
    for where, name in rule.fields:
        if name not in fields:
            raise Wrong((*at, *where), f"the schema has no field {name!r}; it has {', '.join(fields)}")
    if rule.range:
        _check_range((*at, "range"), rule.range, fields[rule.range.field])
    if rule.in_set:
        about = rule.in_set.field
        _refuse((*at, "in_set", "field"), about, fields[about], (Kind.JSON,))
        for index, value in enumerate(rule.in_set.values):
            _comparable((*at, "in_set", "values", index), value, about, fields[about])
    if rule.regex:
        others = [kind for kind in Kind if kind not in (Kind.STRING, Kind.JSON)]
        _refuse((*at, "regex", "field"), rule.regex.field, fields[rule.regex.field], others)
        _check_pattern((*at, "regex", "pattern"), rule.regex.pattern)


def _check_range(at: KeyPath, config: RangeConfig, field_type: FieldType) -> None:
    _refuse((*at, "field"), config.field, field_type, (Kind.BOOLEAN, Kind.JSON))
    ends = [
        _comparable((*at, key), end, config.field, field_type)
        for key, end in (("minimum", config.minimum), ("maximum", config.maximum))
        if end is not None
    ]
    if len(ends) == 2 and ends[0] > ends[1]:
        raise Wrong((*at, "minimum"), f"it is above maximum, {config.maximum}: nothing lies between them")


def _refuse(at: KeyPath, name: str, field_type: FieldType, kinds: Sequence[Kind]) -> None:
    if field_type.kind in kinds:
        raise Wrong(at, f"the field {name!r} is {field_type}, which this check is not for: use an expression")


def _comparable(at: KeyPath, value: Any, name: str, field_type: FieldType) -> Any:
    """The value, as values of the field are compared."""
    kind = field_type.kind
    try:
        if kind in _NUMBERS:
            return _number(value)
        if isinstance(value, bool) == (kind is Kind.BOOLEAN) and isinstance(value, str | bool):
            return value if kind is Kind.BOOLEAN else comparable(kind, str(value))
    except ValueError:
        pass  # refused below
    raise Wrong(at, f"the field {name!r} is {field_type}: write {_WANTED[kind]}")


def _number(value: Any) -> Decimal:
    if isinstance(value, bool) or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError
    number: Decimal = comparable("decimal", value) if isinstance(value, str) else Decimal(str(value))
    return number


def _check_pattern(at: KeyPath, pattern: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of sets in sets, which only Java has
            re.compile(pattern)
    except re.error as error:
        if error.msg.startswith(_WRONG_IN_JAVA_TOO):
            raise Wrong(at, f"this is no regular expression: {error.msg}") from None
    except FutureWarning:
        pass
