"""Selects the fields of a binding, by the connector's constraints and the user's choices."""

from __future__ import annotations

from collections.abc import Collection as Names

from headrace.errors import ConfigError, ProtocolError
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding
from headrace.protocol.messages import Constraint, ConstraintKind, ValidateBinding, ValidatedBinding


def select_fields(
    asked: ValidateBinding, validated: ValidatedBinding, include: Names[str] = (), exclude: Names[str] = ()
) -> Binding:
    """Selects what is required, recommended or included, and omits what is excluded."""
    collection = asked.collection
    for name in (*include, *exclude):
        if name != DOCUMENT_FIELD:
            collection.field(name)  # refuses a name that nothing has
    keys = {field.name for field in collection.key_fields}
    for name in (*(field.name for field in collection.fields), DOCUMENT_FIELD):
        if name not in validated.constraints:
            raise ProtocolError(
                f"Validated says nothing of field {name!r} of collection {collection.name!r}",
                message_name="Validated",
                expected="a constraint for each field, and for the document",
            )
    chosen = {
        name
        for name, constraint in validated.constraints.items()
        if _choose(collection.name, name, constraint, name in include or name in keys, name in exclude)
    }
    return Binding(
        collection=collection,
        resource=asked.resource,
        resource_path=validated.resource_path,
        values=tuple(field for field in collection.fields if field.name in chosen and field.name not in keys),
        document=DOCUMENT_FIELD if DOCUMENT_FIELD in chosen else None,
        delta_updates=validated.delta_updates,
    )


def _choose(collection: str, name: str, constraint: Constraint, included: bool, excluded: bool) -> bool:
    where = f"field {name!r} of collection {collection!r}"
    if excluded and (included or constraint.kind is ConstraintKind.REQUIRED):
        reason = constraint.reason if constraint.kind is ConstraintKind.REQUIRED else "it is also included"
        raise ConfigError(f"{where} cannot be excluded: {reason}")
    if excluded:
        return False
    if constraint.kind is ConstraintKind.INCOMPATIBLE or (included and not constraint.kind.can_be_stored):
        raise ConfigError(f"{where} cannot be stored: {constraint.reason}")
    return included or constraint.kind in (ConstraintKind.REQUIRED, ConstraintKind.RECOMMENDED)
