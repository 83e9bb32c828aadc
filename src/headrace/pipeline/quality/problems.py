"""Finds what is wrong with a rule of quality, as far as that can be told without Spark.

So a file is refused when it is read, with the line. A pipeline asks the same here and then asks Spark, which
alone knows SQL and Java's regular expressions; what is refused here is wrong whatever Spark says.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import Any, NamedTuple

from headrace.model.collections import Collection
from headrace.model.columns import INT64_MAX, INT64_MIN
from headrace.model.field_types import FieldType, Kind
from headrace.model.string_formats import comparable
from headrace.pipeline.settings import Rule

RESERVED = (
    *("_key", "_order", "_is_valid", "_invalid", "_raw", "_failed", "_warned"),
    *("_number", "_parsed", "_corrupt", "_values", "_document", "_count"),
)
"""Columns of a frame that are no fields."""
_NUMBERED = re.compile(r"_nested\d+", re.IGNORECASE)
INVALID_PREFIXES = ("schema:", "endpoint:")
"""Prefixes of the names by which a frame says what is wrong with a row, whatever the rules are."""
INVALID_NAMES = ("json", "encoding")
"""The others of these names."""

_CHECKS = ("not_null", "range", "regex", "in_set", "unique", "expression")
_NUMBERS = (Kind.INTEGER, Kind.NUMBER, Kind.DECIMAL)
_NOT_FOR = {
    "range": (Kind.BOOLEAN, Kind.JSON),
    "in_set": (Kind.JSON,),
    "regex": tuple(kind for kind in Kind if kind not in (Kind.STRING, Kind.JSON)),
}
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
_EXACT = Context(prec=80)


class Problem(NamedTuple):
    where: tuple[str | int, ...]
    """The key of the rule in a file."""
    sentence: str


class Unfit(ValueError):
    """A limit or a member of a set that no value of the field's type can be; says why, or nothing."""


def field_types(collection: Collection) -> dict[str, FieldType]:
    """Returns the types of the properties at the root of the schema, which are what rules speak of."""
    return {name: field.type for name, field in collection.properties.items()}


def reserved_property(collection: Collection) -> str:
    """A property with a name of the pipeline's own; empty if there is none."""
    for name in collection.properties:
        if name.lower() in RESERVED or _NUMBERED.fullmatch(name):  # Spark does not look at a name's case
            return name
    return ""


def rule_problem(rule: Rule, fields: Mapping[str, FieldType], others: Iterable[str]) -> Problem | None:
    """The first thing that is wrong; `others` are the names of the rules before it."""
    return _name_problem(rule, others) or _check_problem(rule, fields)


def _name_problem(rule: Rule, others: Iterable[str]) -> Problem | None:
    if not rule.name:
        return Problem(("name",), "give it a name, by which its dead letters are found")
    if rule.name in others:
        return Problem(("name",), f"another rule has the name {rule.name!r} too: rename one")
    if rule.name.startswith(INVALID_PREFIXES) or rule.name in INVALID_NAMES:
        return Problem(
            ("name",), f"{rule.name!r} is the name of something that is wrong by the schema: rename it"
        )
    return None


def _check_problem(rule: Rule, fields: Mapping[str, FieldType]) -> Problem | None:
    has_range = rule.minimum is not None or rule.maximum is not None
    is_given = {
        "range": has_range,
        **{name: bool(getattr(rule, name)) for name in _CHECKS if name != "range"},
    }
    given = [name for name in _CHECKS if is_given[name]]
    if len(given) != 1:
        has = f"has {' and '.join(given)}" if given else "has none"
        return Problem((), f"a rule has exactly one of {', '.join(_CHECKS)}; this one {has}")
    (check,) = given
    if check == "expression":
        return None
    named: list[tuple[tuple[str | int, ...], str]] = [((check, "field"), rule.field)]
    if check in ("not_null", "unique"):
        named = [((check, index), name) for index, name in enumerate(getattr(rule, check))]
    for where, name in named:
        if name not in fields:
            return Problem(where, f"the schema has no field {name!r}; it has {', '.join(fields)}")
    return _value_problem(check, rule, fields[rule.field]) if check in _NOT_FOR else None


def _value_problem(check: str, rule: Rule, field_type: FieldType) -> Problem | None:
    of_field = f"the field {rule.field!r} is {field_type}"
    if field_type.kind in _NOT_FOR[check]:
        return Problem((check, "field"), f"{of_field}, which this check is not for: use an expression")
    if check == "regex":
        return _pattern_problem(rule.regex)
    values: list[tuple[tuple[str | int, ...], Any, str]] = [
        ((check, "values", index), member, "") for index, member in enumerate(rule.in_set)
    ]
    if check == "range":
        values = [((check, "minimum"), rule.minimum, ROUND_CEILING)]
        values += [((check, "maximum"), rule.maximum, ROUND_FLOOR)]
    converted = []
    for where, value, rounding in values:
        if value is None:
            continue
        try:
            converted.append(convert(value, field_type, rounding))
        except Unfit as error:
            said = f", and {value!r} {error}" if str(error) else f": write {_WANTED[field_type.kind]}"
            return Problem(where, of_field + said)
    if check == "range" and len(converted) == 2 and converted[0] > converted[1]:
        return Problem(("range", "minimum"), f"nothing lies between it and maximum, {rule.maximum}")
    return None


def _pattern_problem(pattern: str) -> Problem | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)  # of sets in sets, which only Java has
            re.compile(pattern)
    except re.error as error:
        if error.msg.startswith(_WRONG_IN_JAVA_TOO):
            return Problem(("regex", "pattern"), f"this is no regular expression: {error.msg}")
    except FutureWarning:
        pass
    return None


def convert(value: Any, field_type: FieldType, rounding: str) -> Any:
    """Converts to the field's type. A limit between two values of it is moved to the next one inside."""
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
    raise Unfit


def _number(value: Any) -> Decimal:
    is_number = isinstance(value, int | float | Decimal | str) and not isinstance(value, bool)
    if not is_number or (isinstance(value, float) and not math.isfinite(value)):
        raise Unfit
    try:
        # By its shortest spelling, which is what the user wrote.
        return comparable("decimal", value) if isinstance(value, str) else Decimal(str(value))
    except ValueError:
        raise Unfit from None


def _round(value: Decimal, scale: int, rounding: str, least: Decimal | int, most: Decimal | int) -> Decimal:
    if not least <= value <= most:
        raise Unfit(f"is beyond what it can hold, {least} to {most}")
    rounded = value.quantize(Decimal(1).scaleb(-scale), rounding or ROUND_FLOOR, _EXACT)
    if not rounding and rounded != value:
        raise Unfit(f"has more than {scale} fraction digits")
    return rounded


def _parsed(kind: Kind, value: Any) -> Any:
    try:
        return comparable(kind, value if isinstance(value, str) else str(value))
    except ValueError:
        raise Unfit from None
