"""What connectors share to let a target say whose it is."""

from __future__ import annotations

from headrace.errors import EndpointError
from headrace.model.materializations import Binding
from headrace.model.ownership import Mode, Owner, owner_conflict


def owner_of(binding: Binding, materialization: str, lineage: str) -> Owner:
    """What a binding's target says of itself once the materialization writes it."""
    mode = Mode.APPEND if binding.delta_updates else Mode.VIEW
    return Owner(materialization, lineage, tuple(field.name for field in binding.keys), mode)


def refuse_other(where: str, found: Owner | None, wanted: Owner, *, adopts: bool) -> None:
    """Refuses a target that is somebody else's, unless it is to be taken over."""
    if (conflict := owner_conflict(found, wanted)) and not adopts:
        raise EndpointError(
            f"{where} {conflict}: give the binding another, or take this one over with --adopt "
            "once nobody else writes it"
        )


def describe_mark(where: str, found: Owner | None, owner: Owner) -> str:
    """The line of Applied for a target that says from now on whose it is."""
    before = f", and no longer {found.materialization!r}" if owner_conflict(found, owner) and found else ""
    return f"let {where} say that materialization {owner.materialization!r} writes it{before}"
