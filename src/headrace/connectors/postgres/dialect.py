"""PostgreSQL's syntax for tables and types."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headrace.connectors.postgres.names import column_name_problem
from headrace.connectors.sql.dialect import Dialect, quote, quote_path
from headrace.connectors.sql.tables import Column, Table
from headrace.errors import SchemaError
from headrace.model.field_types import FieldType, Kind, decimal_type
from headrace.model.ownership import Owner
from headrace.protocol.messages import RowLimits

# JSON and not JSONB: it keeps a document's text as it is, and \u0000 within it.
_DECLARED = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INTEGER: "BIGINT",
    Kind.NUMBER: "DOUBLE PRECISION",
    Kind.STRING: "TEXT",
    Kind.DATE: "DATE",
    Kind.DATE_TIME: "TIMESTAMPTZ",
    Kind.JSON: "JSON",
}
# In the catalog's spelling, and with what a user's own table may have instead.
_KINDS = {declared.lower(): kind for kind, declared in _DECLARED.items()} | {
    "timestamp with time zone": Kind.DATE_TIME,
    "character varying": Kind.STRING,
    "jsonb": Kind.JSON,
}
_MARK = "written by headrace: "
_NUMERIC = re.compile(r"numeric(\(\d+,\d+\))")


# An entry of an index may have 2,704 bytes. Some longer keys would fit, as they are compressed; which, only
# PostgreSQL knows, and it says so when the epoch is stored.
_MAX_KEY_BYTES = 2600


class PostgresDialect(Dialect):
    name = "PostgreSQL"
    limits = RowLimits(refuses_nul=True, max_key_bytes=_MAX_KEY_BYTES)

    def column_type(self, field_type: FieldType) -> str:
        if field_type.kind is Kind.DECIMAL:
            return f"NUMERIC({field_type.precision},{field_type.scale})"
        return _DECLARED[field_type.kind]

    def field_type(self, declared: str) -> FieldType | None:
        declared = declared.lower()
        if match := _NUMERIC.fullmatch(declared):
            try:
                return decimal_type("decimal" + match[1])
            except SchemaError:
                return None
        kind = _KINDS.get(declared)
        return None if kind is None else FieldType(kind)

    def staged_type(self, field_type: FieldType) -> str:
        # The driver writes Arrow's text as text.
        return "TEXT" if field_type.kind is Kind.JSON else self.column_type(field_type)

    def stored(self, staged: str, declared: str) -> str:
        is_json = self.field_type(declared) == FieldType(Kind.JSON)
        return f"CAST({staged} AS {declared})" if is_json else staged

    def takes(self, declared: str, field_type: FieldType) -> bool:
        # COPY casts nothing, and reads JSON from the bytes of its text, but JSONB from others.
        return declared.lower() != "jsonb" and self.field_type(declared) == field_type

    def loaded(self, stored: str, field_type: FieldType) -> str:
        # The driver reads these as types of its own.
        is_text = field_type.kind in (Kind.JSON, Kind.DECIMAL)
        return f"CAST({stored} AS TEXT)" if is_text else stored

    def name_problem(self, name: str) -> str | None:
        return column_name_problem(name)

    def same_name(self, name: str) -> str:
        return name  # quoted names differ by case

    def widen(self, table: str, column: Column, wider: FieldType) -> list[str]:
        name, declared = quote(column.name), self.column_type(wider)
        return [f"ALTER TABLE {table} ALTER COLUMN {name} TYPE {declared} USING CAST({name} AS {declared})"]

    def mark(self, path: Sequence[str], table: Table | None, owner: Owner) -> list[str]:
        said = with_mark(table.comment if table else "", owner).replace("'", "''")
        return [f"COMMENT ON TABLE {quote_path(path)} IS '{said}'"]

    def drop_not_null(self, table: str, column: Column) -> list[str]:
        return [f"ALTER TABLE {table} ALTER COLUMN {quote(column.name)} DROP NOT NULL"]


def with_mark(comment: str, owner: Owner) -> str:
    """Returns a table's comment with the ownership mark below the users' own text."""
    return "\n".join([*([comment] if comment else ()), f"{_MARK}{owner.encode()}"])


def read_comment(comment: str) -> tuple[str, Owner | None]:
    """Splits a comment into the users' own text and the owner."""
    kept: list[str] = []
    owner: Owner | None = None
    for line in comment.split("\n"):
        try:
            if line.startswith(_MARK):
                owner = Owner.decode(line.removeprefix(_MARK))
                continue
        except ValueError:
            pass  # written by somebody in the same format
        kept.append(line)
    return "\n".join(kept), owner
