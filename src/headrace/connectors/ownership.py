"""Ownership checks and messages that connectors share."""

from __future__ import annotations

from headrace.errors import EndpointError
from headrace.model.ownership import Owner, owner_conflict


def refuse_other(where: str, found: Owner | None, wanted: Owner, *, adopts: bool) -> None:
    """Refuses a target of another owner, unless it is to be taken over."""
    if (conflict := owner_conflict(found, wanted)) and not adopts:
        raise EndpointError(
            f"{where} {conflict}: give the binding another, or take this one over with --adopt "
            "once nobody else writes it"
        )


def describe_mark(where: str, found: Owner | None, owner: Owner) -> str:
    """Returns the line of Applied for a target that records its owner from now on."""
    said = f"let {where} say that materialization {owner.materialization!r} writes it"
    if found is None or found.materialization == owner.materialization:
        return said
    return f"{said}, and no longer {found.materialization!r}"
