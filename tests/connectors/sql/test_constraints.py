"""A constraint, with its reason, for each way in which a field and a table can meet."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.sql.constraints import constrain
from headrace.connectors.sql.tables import Column, Table
from headrace.connectors.sqlite.dialect import SqliteDialect
from headrace.model.collections import Collection
from headrace.protocol.messages import Constraint, ConstraintKind


def collection(**properties: dict[str, Any]) -> Collection:
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, **properties}}
    merged = any("reduce" in below for below in properties.values())
    return Collection("things", ("/id",), {**schema, "reduce": {"strategy": "merge"}} if merged else schema)


def table(primary_key: tuple[str, ...] = ("id",), **declared: str) -> Table:
    declared = {"id": "INTEGER", "_document": "JSON_TEXT", **declared}
    return Table({name: Column(name, kind, nullable=True) for name, kind in declared.items()}, primary_key)


PLAIN = Table({"id": Column("id", "INTEGER", nullable=False)}, ("id",))
SUM = {"strategy": "sum"}


def constraint(field: str, of: Collection, existing: Table | None, delta: bool = False) -> Constraint:
    return constrain(of, existing, SqliteDialect(), delta)[field]


@pytest.mark.parametrize(
    ("field", "schema", "existing", "delta", "kind", "reason"),
    [
        ("id", {}, None, False, "required", "part of the key"),
        ("id", {}, table(), False, "required", "part of the key, as INTEGER"),
        ("x", {"type": "string"}, None, False, "recommended", "plain value"),
        ("x", {"type": "object"}, None, False, "optional", "nested"),
        ("x", {"type": ["string", "integer"]}, None, False, "optional", "nested"),
        ("x", {"type": "string"}, table(x="TEXT"), False, "recommended", "the table has it, as TEXT"),
        ("x", {"type": "string"}, table(), False, "recommended", "plain value"),
        ("x", {"type": "number"}, table(x="INTEGER"), False, "recommended", "widened to REAL"),
        (
            "x",
            {"type": "integer"},
            table(x="TEXT"),
            False,
            "incompatible",
            "'x' is TEXT in the table",
        ),
        ("x", {"type": "string"}, table(X="TEXT"), False, "recommended", "the table has it, as TEXT"),
        ("x", {"type": "string"}, table(x="VARCHAR(10)"), False, "incompatible", "VARCHAR"),
        ("x\0y", {"type": "string"}, None, False, "forbidden", "cannot be the name"),
        ("ID", {"type": "string"}, None, False, "forbidden", "the same to SQLite"),
        ("_DOCUMENT", {"type": "string"}, None, False, "forbidden", "the same to SQLite"),
        ("id", {}, table(id="TEXT"), False, "incompatible", "'id' is TEXT"),
        ("id", {}, table(primary_key=("other",)), False, "incompatible", "primary key (other)"),
        ("id", {}, table(primary_key=()), False, "incompatible", "no primary key"),
        ("id", {}, table(), True, "incompatible", "delta updates repeat keys"),
        ("id", {}, table(primary_key=()), True, "required", "part of the key"),
        ("x", {"type": "object"}, PLAIN, False, "recommended", "nested"),
        ("_document", {}, None, False, "recommended", "can be left out"),
        ("_document", {}, None, True, "optional", "never loaded"),
        ("_document", {}, table(), False, "required", "the table has it"),
        ("_document", {}, table(_document="TEXT"), False, "incompatible", "'_document' is TEXT"),
        ("_document", {}, PLAIN, False, "forbidden", "the rows that are there have none"),
        ("_document", {"type": "integer", "reduce": SUM}, None, False, "required", "loaded again"),
        (
            "_document",
            {"type": "integer", "reduce": SUM},
            PLAIN,
            False,
            "incompatible",
            "without column '_document'",
        ),
    ],
)
def test_constraint(
    field: str, schema: dict[str, Any], existing: Table | None, delta: bool, kind: str, reason: str
) -> None:
    name = "x" if field == "_document" else field
    fields = {name: schema} if schema else {}
    found = constraint(field, collection(**fields), existing, delta)
    assert found.kind is ConstraintKind(kind)
    assert reason in found.reason
