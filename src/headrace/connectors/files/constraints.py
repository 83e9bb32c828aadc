"""Validate: constraints for each field, given the existing files."""

from __future__ import annotations

from headrace.connectors.files.tables import Table
from headrace.model.collections import DOCUMENT_FIELD, Collection, Field
from headrace.model.field_types import FieldType, Kind
from headrace.protocol.messages import Constraint, ConstraintKind


def constrain(collection: Collection, table: Table | None) -> dict[str, Constraint]:
    """Returns a constraint with its reason for each field, and for the document."""
    constraints = {
        field.name: _conflict(field.name, field.type, table)
        or _new(field, is_key=field in collection.key_fields)
        for field in collection.fields
    }
    constraints[DOCUMENT_FIELD] = _conflict(DOCUMENT_FIELD, FieldType(Kind.JSON), table) or Constraint(
        ConstraintKind.OPTIONAL, "the fields hold all of it, and delta updates are never loaded again"
    )
    return constraints


def _conflict(name: str, field_type: FieldType, table: Table | None) -> Constraint | None:
    problem = table.conflict(name, field_type) if table else None
    return Constraint(ConstraintKind.INCOMPATIBLE, problem) if problem else None


def _new(field: Field, is_key: bool) -> Constraint:
    if is_key:
        return Constraint(ConstraintKind.REQUIRED, "it is part of the key")
    what = "it is nested, and written as JSON" if field.type.kind is Kind.JSON else "it is a plain value"
    return Constraint(ConstraintKind.RECOMMENDED, what)
