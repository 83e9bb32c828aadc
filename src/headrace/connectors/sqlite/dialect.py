"""SQLite's syntax for tables and types.

A declared type only gives a column an affinity, by words that it contains. The types here name the field's
type and contain the word for its storage: INT, TEXT or REAL. A bare DECIMAL or DATE would have numeric
affinity, and SQLite would turn '12.50' into 12.5.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.connectors.sql.dialect import Dialect, quote
from headrace.connectors.sql.tables import Column, Table
from headrace.errors import SchemaError
from headrace.model.field_types import FieldType, Kind, decimal_type
from headrace.model.ownership import Owner

_DECLARED = {
    Kind.BOOLEAN: "BOOLEAN_INT",
    Kind.INTEGER: "INTEGER",
    Kind.NUMBER: "REAL",
    Kind.STRING: "TEXT",
    Kind.DATE: "DATE_TEXT",
    Kind.DATE_TIME: "DATETIME_TEXT",
    Kind.JSON: "JSON_TEXT",
}
_KINDS = {declared: kind for kind, declared in _DECLARED.items()}
_MARK = " is written by headrace: "
_DECIMAL = re.compile(r"DECIMAL_TEXT(\(.*\))")


class SqliteDialect(Dialect):
    name = "SQLite"

    def column_type(self, field_type: FieldType) -> str:
        if field_type.kind is Kind.DECIMAL:
            return f"DECIMAL_TEXT({field_type.precision},{field_type.scale})"
        return _DECLARED[field_type.kind]

    def field_type(self, declared: str) -> FieldType | None:
        if match := _DECIMAL.fullmatch(declared):
            try:
                return decimal_type("decimal" + match[1])
            except SchemaError:
                return None
        kind = _KINDS.get(declared.upper())
        return None if kind is None else FieldType(kind)

    def staged_type(self, field_type: FieldType) -> str:
        return self.column_type(field_type)

    def stored(self, staged: str, declared: str) -> str:  # noqa: ARG002 - every column is kept as it is staged
        return staged

    def loaded(self, stored: str, field_type: FieldType) -> str:  # noqa: ARG002
        return stored

    def name_problem(self, name: str) -> str | None:
        if not name or "\0" in name:
            return f"{name!r} cannot be the name of an SQLite column"
        return None

    def same_name(self, name: str) -> str:
        # SQLite folds only ASCII letters.
        return "".join(letter.lower() if letter.isascii() else letter for letter in name)

    def widen(self, table: str, column: Column, wider: FieldType) -> list[str]:
        # Integers and decimals become text, or a real, by the affinity of the target column.
        return _replace_column(table, column.name, self.column_type(wider))

    def mark(self, path: Sequence[str], table: Table | None, owner: Owner) -> list[str]:
        schema, name = path
        before = [table.owner] if table and table.owner else []
        return [
            *(f"DROP INDEX {quote(schema)}.{quote(_mark(name, found))}" for found in before),
            f"CREATE INDEX {quote(schema)}.{quote(_mark(name, owner))} ON {quote(name)}"
            f" ({quote(owner.key[0])}) WHERE 0",
        ]

    def drop_not_null(self, table: str, column: Column) -> list[str]:
        return _replace_column(table, column.name, column.declared)


def owner_in(index: str) -> Owner | None:
    """Returns a table's owner from the name of one of its indexes; None if that is no mark."""
    _, separator, said = index.partition(_MARK)
    try:
        return Owner.decode(said) if separator else None
    except ValueError:
        return None


def _mark(table: str, owner: Owner) -> str:
    """Returns the name of an index without rows that records a table's owner, because SQLite has no
    comments."""
    return f"{table}{_MARK}{owner.encode()}"


def _replace_column(table: str, name: str, declared: str) -> list[str]:
    """Replaces a column, because SQLite cannot alter one; the indexes and triggers of other columns stay."""
    old, new = quote(name), quote(f"{name}_headrace_new")
    return [
        f"ALTER TABLE {table} ADD COLUMN {new} {declared}",
        f"UPDATE {table} SET {new} = {old}",  # noqa: S608 - names are quoted
        f"ALTER TABLE {table} DROP COLUMN {old}",
        f"ALTER TABLE {table} RENAME COLUMN {new} TO {old}",
    ]
