"""The mark by which a place says whose it is, held against who wants to write there."""

from __future__ import annotations

from headrace.errors import EndpointError
from headrace.model.ownership import Owner, owner_conflict


def refuse_other(name: str, where: str, found: Owner | None, wanted: Owner, *, adopts: bool = False) -> None:
    """Refuses what somebody else owns, or what has another key or mode, unless a person adopts it."""
    conflict = owner_conflict(found, wanted)
    if conflict and not adopts:
        raise EndpointError(
            f"sink {name}: {where} {conflict}: write to another table, or take this one over with --adopt "
            "once nobody else writes it"
        )
