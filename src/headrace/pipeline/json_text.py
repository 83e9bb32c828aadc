"""JSON text in SQL, where Spark's own functions do not tell one type of value from another."""

from __future__ import annotations

from headrace.pipeline.spark_types import escaped

BLANK = " \t\r\n"  # what JSON allows between tokens

# Possessive, since Java's other loops over a group take its stack for each round, and long strings all of it.
_INSIDE = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
STRING = f'"{_INSIDE}"'
# The name of a member as it is, or the two quotes of a string.
_STRINGS = rf'({STRING}\s*+:)|("){_INSIDE}(")'


def with_empty_strings(sql: str) -> str:
    """The same JSON, but that each string in it is empty; names are kept.

    Spark's functions take the quotes off a string, so that `"1"` and `1` are one text. Of this text they
    make an empty one for a string, and for nothing else.
    """
    return f"regexp_replace({sql}, '{escaped(_STRINGS)}', '$1$2$3')"


def quoted(sql: str) -> str:
    """The text as a JSON string."""
    # Of an array of it, the brackets taken off.
    return f"regexp_extract(to_json(array({sql})), '(?s)^.(.*).$', 1)"


def is_null(sql: str) -> str:
    """Whether JSON text is JSON's null; null where there is no text."""
    return f"btrim({sql}, '{BLANK}') = 'null'"


def is_object(sql: str) -> str:
    return f"startswith(btrim({sql}, '{BLANK}'), '{{')"
