"""Strings that represent another value: `date`, `date-time`, `decimal` and `decimal(p,s)`.

JSON numbers are binary floats to most readers, so exact decimals travel as strings in plain notation. A
string that does not follow its format raises `ValueError`, since only the caller knows its location.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

from headrace.model.field_types import FieldType, decimal_type

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DATE_TIME = re.compile(_DATE.pattern + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})")
# No exponent: "1e999999999" would be a gigabyte in plain notation.
_DECIMAL = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def is_decimal(format_name: str | None) -> bool:
    """Returns whether the format claims to be a decimal; `decimal_limits` returns whether it is valid."""
    return format_name is not None and format_name.startswith("decimal")


def decimal_limits(format_name: str) -> FieldType | None:
    """Returns precision and scale, or none for `decimal` alone, whose values keep all their digits."""
    limits = decimal_type(format_name)
    return None if format_name == "decimal" else limits


def comparable(format_name: str, text: str) -> Any:
    """Returns the value by which `text` is compared with strings of the same format; other formats compare as
    text."""
    if format_name == "date":
        return _date(text)
    if format_name == "date-time":
        return _date_time(text)
    if is_decimal(format_name):
        return _decimal(text)
    return text


def add_decimals(format_name: str, left: str, right: str) -> str:
    """Returns the exact sum in plain notation, with `s` fraction digits, or else those of the longer
    fraction."""
    limits = decimal_limits(format_name)
    terms = [_decimal(left), _decimal(right)]
    # A sum never has more digits than its terms have characters, so this context never rounds.
    total = Context(prec=len(left) + len(right)).add(*terms)
    if total.is_zero():
        total = abs(total)  # a reader would stumble over minus zero
    if limits is None:
        return f"{total:f}"
    for value in (*terms, total):
        _refuse_unfit(limits, value)
    return f"{total:.{limits.scale}f}"


def _refuse_unfit(limits: FieldType, value: Decimal) -> None:
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)  # NaN and infinity never pass `_DECIMAL`
    if -exponent > limits.scale:
        raise ValueError(f"{value:f} has more than {limits.scale} fraction digits, so it is no {limits}")
    whole = limits.precision - limits.scale
    if abs(value) >= 10**whole:
        raise ValueError(f"{value:f} has more than {whole} integer digits, so it is no {limits}")


def _decimal(text: str) -> Decimal:
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a decimal in plain notation")
    return Decimal(text)


def _date(text: str) -> date:
    if _DATE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a date (YYYY-MM-DD)")
    return date.fromisoformat(text)


def _date_time(text: str) -> datetime:
    upper = text.upper()  # RFC 3339 lets writers use "t" and "z"
    if _DATE_TIME.fullmatch(upper) is None:
        raise ValueError(f"{text!r} is not a date-time with an offset (RFC 3339)")
    return datetime.fromisoformat(upper.replace("Z", "+00:00"))
