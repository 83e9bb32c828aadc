"""Validate for SQL endpoints: constraints for each field, given the existing table."""

from __future__ import annotations

from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.tables import Column, Table
from headrace.model.collections import DOCUMENT_FIELD, Collection, Field
from headrace.model.field_types import FieldType, Kind
from headrace.model.reductions import needs_load
from headrace.protocol.messages import Constraint, ConstraintKind


def constrain(
    collection: Collection, table: Table | None, dialect: Dialect, delta_updates: bool
) -> dict[str, Constraint]:
    """Returns a constraint with its reason for each field, and for the document."""
    is_loaded = not delta_updates and needs_load(collection.schema)
    document = _document_constraint(table, dialect, delta_updates, is_loaded)
    claimed = {dialect.same_name(DOCUMENT_FIELD)}  # by the first field: the document, then the keys
    key_problem = _key_problem(collection, table, dialect, delta_updates)
    constraints: dict[str, Constraint] = {}
    for field in collection.fields:
        is_key = field in collection.key_fields
        constraint = _name_constraint(field.name, dialect, claimed) or _existing_constraint(
            field.name, field.type, table, dialect, is_key
        )
        if is_key and key_problem:
            constraint = Constraint(ConstraintKind.INCOMPATIBLE, key_problem)
        constraints[field.name] = constraint or _new_constraint(field, is_key, document.kind.can_be_stored)
    constraints[DOCUMENT_FIELD] = document
    return constraints


def _name_constraint(name: str, dialect: Dialect, claimed: set[str]) -> Constraint | None:
    if problem := dialect.name_problem(name):
        return Constraint(ConstraintKind.FORBIDDEN, problem)
    if dialect.same_name(name) in claimed:
        return Constraint(
            ConstraintKind.FORBIDDEN, f"another field's name is the same to {dialect.name} as {name!r}"
        )
    claimed.add(dialect.same_name(name))
    return None


def _existing_constraint(
    name: str, field_type: FieldType, table: Table | None, dialect: Dialect, is_key: bool
) -> Constraint | None:
    column = dialect.column(table, name) if table else None
    if column is None:
        return None
    stored = dialect.field_type(column.declared)
    required = ConstraintKind.REQUIRED if is_key else ConstraintKind.RECOMMENDED
    if stored == field_type:
        what = "it is part of the key" if is_key else "the table has it"
        return Constraint(required, f"{what}, as {column.declared}")
    if stored is not None and stored.widens_to(field_type) and not is_key:
        wider = dialect.column_type(field_type)
        return Constraint(
            required, f"the table has it as {column.declared}, which will be widened to {wider}"
        )
    return Constraint(ConstraintKind.INCOMPATIBLE, type_conflict(name, field_type, column, dialect))


def type_conflict(name: str, field_type: FieldType, column: Column, dialect: Dialect) -> str:
    return (
        f"column {name!r} is {column.declared} in the table and the field is {field_type}, "
        f"which needs {dialect.column_type(field_type)}: "
        "change the schema back, or materialize into a new table"
    )


def _new_constraint(field: Field, is_key: bool, has_document: bool) -> Constraint:
    if is_key:
        return Constraint(ConstraintKind.REQUIRED, "it is part of the key")
    if field.type.kind is Kind.JSON and has_document:
        return Constraint(ConstraintKind.OPTIONAL, "it is nested, and the document holds it too")
    what = "nested" if field.type.kind is Kind.JSON else "a plain value"
    return Constraint(ConstraintKind.RECOMMENDED, f"it is {what}")


def _document_constraint(
    table: Table | None, dialect: Dialect, delta_updates: bool, is_loaded: bool
) -> Constraint:
    document_type = FieldType(Kind.JSON)
    existing = _existing_constraint(DOCUMENT_FIELD, document_type, table, dialect, is_key=False)
    if existing and not existing.kind.can_be_stored:
        return existing
    if delta_updates:
        return Constraint(ConstraintKind.OPTIONAL, "delta updates are never loaded again")
    if is_loaded:
        if table and existing is None:
            return Constraint(
                ConstraintKind.INCOMPATIBLE,
                f"the table is there without column {DOCUMENT_FIELD!r}, so its rows cannot be loaded: "
                "materialize into a new table",
            )
        return Constraint(ConstraintKind.REQUIRED, "it is loaded again to be reduced with later documents")
    if existing:
        return Constraint(ConstraintKind.REQUIRED, "the table has it, and it has to be what the row says")
    if table:
        return Constraint(
            ConstraintKind.FORBIDDEN, "the rows that are there have none: materialize into a new table"
        )
    return Constraint(
        ConstraintKind.RECOMMENDED,
        "other reductions would load it later; by those of now it can be left out",
    )


def _key_problem(
    collection: Collection, table: Table | None, dialect: Dialect, delta_updates: bool
) -> str | None:
    if table is None:
        return None
    wanted = () if delta_updates else tuple(field.name for field in collection.key_fields)
    if dialect.same_names(table.primary_key) == dialect.same_names(wanted):
        return folded_keys(table)
    if delta_updates:
        return (
            f"the table has the primary key ({', '.join(table.primary_key)}), and delta updates repeat keys: "
            "materialize into a new table"
        )
    there = f"the primary key ({', '.join(table.primary_key)})" if table.primary_key else "no primary key"
    return (
        f"the collection's key is ({', '.join(wanted)}) and the table has {there}: "
        "materialize into a new table"
    )


def folded_keys(table: Table) -> str | None:
    """Returns why two keys of a collection would be equal in the table; empty if they would not."""
    if not table.folded:
        return None
    return (
        f"the collation of {', '.join(table.folded)} takes different keys for one, such as 'a' and 'A': "
        "materialize into a new table, or create it with a collation that compares bytes"
    )
