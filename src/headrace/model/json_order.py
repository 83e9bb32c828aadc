"""Inspects JSON values, finds their parts, and defines one total order over all of them.

    null < false < true < numbers < strings < arrays < objects

Numbers compare by value, an integer with a float exactly; strings by code point; arrays item by item, a
prefix first; objects as the arrays of their members, sorted by name. `1` and `1.0` are equal.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from headrace.model.collections import pointer_tokens
from headrace.model.string_formats import comparable

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"

# Compares, and hashes, as its value is ordered.
OrderKey: TypeAlias = tuple[Any, ...]

# Smaller than the rank of any value, so that a prefix comes before what continues it.
_END = -1
_NULL, _FALSE, _TRUE, _NUMBER, _STRING, _ARRAY, _OBJECT = range(7)


def order_key(value: JsonValue, format_name: str | None = None) -> OrderKey:
    """Converts `value` so that Python orders it as this module defines; raises `ValueError` if it is not
    JSON.

    A string of a `date`, `date-time` or `decimal` format is compared by the value that it represents. The
    format is that of `value` itself: strings inside an array or an object always compare by code point.
    """
    if format_name is not None and isinstance(value, str):
        return (_STRING, comparable(format_name, value))
    tokens: list[Any] = []
    _put_tokens(value, tokens)
    return tuple(tokens)


def _put_tokens(value: JsonValue, tokens: list[Any]) -> None:
    # One flat list, because Python compares nested tuples recursively and would give up on a deep document.
    # Two lists that agree so far stand at the same place of the same structure, so types never clash.
    match value:
        case None:
            tokens.append(_NULL)
        case bool():
            tokens.append(_TRUE if value else _FALSE)
        case int() | float():
            if value != value:
                raise ValueError("NaN is not a JSON number")
            tokens += (_NUMBER, value)
        case str():
            tokens += (_STRING, value)
        case list():
            tokens.append(_ARRAY)
            for item in value:
                _put_tokens(item, tokens)
            tokens.append(_END)
        case dict():
            tokens.append(_OBJECT)
            for name in sorted(value):
                tokens += (_STRING, name)
                _put_tokens(value[name], tokens)
            tokens.append(_END)
        case _:
            raise ValueError(f"{type(value).__name__} is not a JSON type")


def kind_of(value: object) -> str:
    """Returns the JSON type of `value`, for messages."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case _:
            return type(value).__name__


def value_at(value: JsonValue, pointer: str) -> JsonValue:
    """Returns the value that the JSON pointer refers to, or null if there is none."""
    for step in steps_of(pointer):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and is_index(step) and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def steps_of(pointer: str) -> list[str]:
    """Returns the steps of a JSON pointer: none for the empty pointer, which refers to the value itself."""
    return pointer_tokens(pointer) if pointer else []


def extend_pointer(pointer: str, step: str | int) -> str:
    """Returns `pointer` with one more step."""
    return f"{pointer}/{str(step).replace('~', '~0').replace('/', '~1')}"


def is_index(step: str) -> bool:
    """Returns whether a step of a pointer can index an array (RFC 6901: no sign and no leading zero)."""
    return step.isascii() and step.isdigit() and (step == "0" or step[0] != "0")
