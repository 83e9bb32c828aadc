"""What connectors share to let a target say whose it is."""

from __future__ import annotations

from headrace.errors import EndpointError
from headrace.model.ownership import Owner, owner_conflict


def refuse_other(where: str, found: Owner | None, wanted: Owner, *, adopts: bool) -> None:
    """Refuses a target that is somebody else's, unless it is to be taken over."""
    if (conflict := owner_conflict(found, wanted)) and not adopts:
        raise EndpointError(
            f"{where} {conflict}: give the binding another, or take this one over with --adopt "
            "once nobody else writes it"
        )


def describe_mark(where: str, found: Owner | None, owner: Owner) -> str:
    """The line of Applied for a target that says from now on whose it is."""
    said = f"let {where} say that materialization {owner.materialization!r} writes it"
    if found is None or found.materialization == owner.materialization:
        return said
    return f"{said}, and no longer {found.materialization!r}"
