"""Spark's SQL: names, texts, the type of each kind of field, and how a text is read as one."""

from __future__ import annotations

from headrace.model.field_types import FieldType, Kind

_TYPES = {
    Kind.BOOLEAN: "boolean",
    Kind.INTEGER: "bigint",
    Kind.NUMBER: "double",
    Kind.STRING: "string",
    Kind.DATE: "date",
    Kind.DATE_TIME: "timestamp",
    Kind.JSON: "string",
}
# `$` would let a line feed follow.
_DATE = r"^\\d{4}-\\d{2}-\\d{2}\\z"
# A date-time without an offset is no instant.
_DATE_TIME = r"^\\d{4}-\\d{2}-\\d{2}[Tt ]\\d{2}:\\d{2}:\\d{2}(\\.\\d+)?([Zz]|[+-]\\d{2}:\\d{2})\\z"


def spark_type(field: FieldType) -> str:
    """Returns the type in Spark's DDL."""
    if field.kind is Kind.DECIMAL:
        return f"decimal({field.precision},{field.scale})"
    return _TYPES[field.kind]


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def escaped(text: str) -> str:
    """Escapes a text to stand between single quotes."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


def text(value: str) -> str:
    return f"'{escaped(value)}'"


def value_of_text(field: FieldType, sql: str) -> str:
    """Reads a string of the field's format as its value; null where it does not follow the format."""
    match field.kind:
        case Kind.DATE:
            return _by_pattern(sql, _DATE, f"try_cast({sql} as date)")
        case Kind.DATE_TIME:
            return _by_pattern(sql, _DATE_TIME, f"try_cast(upper({sql}) as timestamp)")
        case Kind.DECIMAL:
            fraction = f"(\\\\.\\\\d{{1,{field.scale}}})?" if field.scale else ""
            pattern = f"^[+-]?\\\\d+{fraction}\\\\z"
            return _by_pattern(sql, pattern, f"try_cast({sql} as {spark_type(field)})")
    return sql


def is_utf8(sql: str) -> str:
    """Whether all bytes of a string are characters; Java would put one and the same for all that are not."""
    from pyspark.sql import functions

    if hasattr(functions, "is_valid_utf8"):  # from Spark 4 on, where `encode` returns the bytes as they are
        return f"is_valid_utf8({sql})"
    return f"encode({sql}, 'UTF-8') = cast({sql} as binary)"


def _by_pattern(sql: str, pattern: str, value: str) -> str:
    return f"if({sql} rlike '{pattern}', {value}, null)"
