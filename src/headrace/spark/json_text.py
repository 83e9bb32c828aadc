"""JSON text in SQL, where Spark's own functions do not tell one type of value from another."""

from __future__ import annotations

from headrace.spark.sql import escaped

BLANK = " \t\r\n"  # what JSON allows between tokens

# Possessive, since Java's other loops over a group take its stack for each round, and long strings all of it.
_INSIDE = r'[^"\\]*+(?:\\.[^"\\]*+)*+'
STRING = f'"{_INSIDE}"'
# The name of a member as it is, or the two quotes of a string.
_STRINGS = rf'({STRING}\s*+:)|("){_INSIDE}(")'

# A fraction, or a number with an exponent, of more significant digits than those by which a double is spelled
# (17), or so near to 0 that the double is 0. Integers keep all of their digits. A loop over a group is
# bounded, since it takes Java's stack.
_INEXACT = (
    r"(?<![\w.+-])-?(?:"
    r"(?=\d++[.eE])[0.]*+[1-9](?:\.?\d){16,400}?\.?[1-9][\d.]*+(?:[eE][+-]?\d++)?"
    r"|[0.]*+[1-9][\d.]*+[eE]-0*+(?:32[5-9]|3[3-9]\d|[4-9]\d\d|[1-9]\d{3,})(?!\d)"
    r"|0\.0{324,}+[1-9]\d*+(?![\deE])"
    r")"
)
# All that can be such a number, or be beyond the largest double, and some that are neither.
_DOUBTFUL = r"[\d.]{18}|[eE][+-]?0*+[1-9]\d\d"
_MARK = "!"
# Spark writes infinity as a string. What it reads here has no other strings; names have a colon after them.
_CHANGED = rf'"(?:{_MARK}|-?Infinity)"(?!:)'

# Escapes of whole characters: a half of one has no bytes in UTF-8, and Spark writes a question mark for it.
_WHOLE = (
    r"^(?:[^\\]++|\\[^u]|\\u(?![dD][89a-fA-F])"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+\z"
)


def with_empty_strings(sql: str) -> str:
    """Empties each string in JSON; names are kept.

    Spark's functions take the quotes off a string, so that `"1"` and `1` are one text. Of this text they
    make an empty one for a string, and for nothing else.
    """
    return f"regexp_replace({sql}, '{escaped(_STRINGS)}', '$1$2$3')"


def with_marked_numbers(sql: str) -> str:
    """JSON without strings, but for names, in which each number that a double cannot hold is a string."""
    tokens = f"regexp_extract_all(unmarked, '{escaped(STRING)}|[^\"]++', 0)"
    marked = f"regexp_replace(token, '{escaped(_INEXACT)}', '\"{_MARK}\"')"
    joined = f"array_join(transform({tokens}, token -> if(startswith(token, '\"'), token, {marked})), '')"
    found = f"if(unmarked rlike '{escaped(_DOUBTFUL)}', {joined}, unmarked)"
    return f"get(transform(array({sql}), unmarked -> {found}), 0)"


def is_changed(sql: str) -> str:
    """Whether a number is another one in what Spark has made of JSON `with_marked_numbers`."""
    return f"({sql} = '{_MARK}' or {sql} rlike '{escaped(_CHANGED)}')"


def has_inexact_number(sql: str) -> str:
    """Whether a number inside of a JSON object or array would be another one, once Spark has written it."""
    read = f"get_json_object({with_marked_numbers(with_empty_strings(sql))}, '$')"
    return f"({sql} rlike '{escaped(_DOUBTFUL)}' and coalesce({is_changed(read)}, false))"


def has_half_characters(sql: str) -> str:
    """Whether JSON text has an escape of a surrogate that is not one of a pair."""
    may_have = f"(contains({sql}, '\\\\ud') or contains({sql}, '\\\\uD'))"
    return f"({may_have} and not {sql} rlike '{escaped(_WHOLE)}')"


def quoted(sql: str) -> str:
    """The text as a JSON string."""
    # Of an array of it, the brackets taken off.
    return f"regexp_extract(to_json(array({sql})), '(?s)^.(.*).$', 1)"


def is_null(sql: str) -> str:
    """Whether JSON text is JSON's null; null where there is no text."""
    return f"btrim({sql}, '{BLANK}') = 'null'"


def is_object(sql: str) -> str:
    return f"startswith(btrim({sql}, '{BLANK}'), '{{')"
