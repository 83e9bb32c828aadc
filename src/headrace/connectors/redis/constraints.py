"""Validate: constraints for each field, given the existing layout."""

from __future__ import annotations

from headrace.connectors.redis.config import RedisResource
from headrace.connectors.redis.layouts import Layout, key_types
from headrace.connectors.redis.replays import counted_again
from headrace.model.collections import DOCUMENT_FIELD, Collection, Field
from headrace.model.field_types import FieldType, Kind
from headrace.protocol.messages import Constraint, ConstraintKind

_NEW_PREFIX = "materialize under a new prefix"


def constrain(
    collection: Collection, resource: RedisResource, layout: Layout | None
) -> dict[str, Constraint]:
    """Returns a constraint with its reason for each field, and for the document."""
    problem = layout and layout_problem(key_types(collection.key_fields), resource, layout)
    keys = (
        Constraint(ConstraintKind.INCOMPATIBLE, problem)
        if problem
        else Constraint(ConstraintKind.REQUIRED, "it is part of the key")
    )
    constraints = {
        field.name: keys if field in collection.key_fields else _field_constraint(field, resource, layout)
        for field in collection.fields
    }
    constraints[DOCUMENT_FIELD] = _document_constraint(collection, resource)
    return constraints


def layout_problem(
    keys: tuple[tuple[str, FieldType], ...], resource: RedisResource, layout: Layout
) -> str | None:
    """Returns why a binding cannot use the prefix of this layout at all."""
    if (layout.format, layout.delta_updates) != (resource.format, resource.delta_updates):
        return f"prefix {resource.prefix!r} holds {layout.kind}: {_NEW_PREFIX}"
    if layout.keys != keys:
        return (
            f"the collection's key is ({_spell(keys)}) and prefix {resource.prefix!r} holds documents "
            f"by ({_spell(layout.keys)}): {_NEW_PREFIX}"
        )
    return None


def type_conflict(name: str, field_type: FieldType, stored: FieldType | None) -> str | None:
    """Returns why a field cannot be stored beside its values in older documents."""
    if stored in (None, field_type) or (stored and stored.widens_to(field_type)):
        return None
    return (
        f"field {name!r} is stored as {stored} and now is {field_type}: "
        f"change the schema back, or {_NEW_PREFIX}"
    )


def _field_constraint(field: Field, resource: RedisResource, layout: Layout | None) -> Constraint:
    if resource.format == "json":
        return Constraint(ConstraintKind.OPTIONAL, "the document holds it already")
    stored = layout.fields.get(field.name) if layout else None
    if conflict := type_conflict(field.name, field.type, stored):
        return Constraint(ConstraintKind.INCOMPATIBLE, conflict)
    if stored == field.type:
        return Constraint(ConstraintKind.RECOMMENDED, f"it is stored already, as {stored}")
    if stored is not None:
        return Constraint(
            ConstraintKind.RECOMMENDED, f"it is stored as {stored}, which reads as {field.type} too"
        )
    if field.type.kind is Kind.JSON:
        return Constraint(ConstraintKind.OPTIONAL, "it is nested, and the document holds it too")
    return Constraint(ConstraintKind.RECOMMENDED, "it is a plain value")


def _document_constraint(collection: Collection, resource: RedisResource) -> Constraint:
    again = _what_a_replay_does(collection, resource)
    if resource.format == "json":
        return Constraint(ConstraintKind.REQUIRED, f"it is what is stored; {again}")
    if resource.delta_updates:
        return Constraint(ConstraintKind.OPTIONAL, f"delta updates are never loaded again; {again}")
    reason = "it is loaded again to be reduced with later documents"
    return Constraint(ConstraintKind.REQUIRED, f"{reason}; {again}")


def _what_a_replay_does(collection: Collection, resource: RedisResource) -> str:
    """Describes the delivery guarantee, in the only part of Validated that the user sees."""
    if resource.delta_updates:
        return "delivery is at least once, and a replayed transaction adds its entries again"
    if counted := ", ".join(counted_again(collection.schema)):
        return f"delivery is at least once, and a replayed transaction counts twice in {counted}"
    return "delivery is at least once, and a replayed transaction changes nothing"


def _spell(keys: tuple[tuple[str, FieldType], ...]) -> str:
    return ", ".join(f"{name} {field_type}" for name, field_type in keys)
