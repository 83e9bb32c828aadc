"""The mark by which a place says whose it is, held against who wants to write there."""

from __future__ import annotations

from dataclasses import replace

from headrace.errors import EndpointError
from headrace.model.ownership import Owner, owner_conflict

MARK = "headrace.owner"
"""The property of a table that holds its mark."""


def read_mark(name: str, where: str, mark: str | None) -> Owner | None:
    """None if there is no mark. Refuses one that cannot be read, since it may be anybody's."""
    if mark is None:
        return None
    try:
        return Owner.decode(mark)
    except ValueError:
        raise EndpointError(
            f"sink {name}: {where} does not say whose it is: its {MARK} is {mark!r}, which a later "
            "version may have written: remove that once nobody else writes there, or write to another table"
        ) from None


def refuse_other(name: str, where: str, found: Owner | None, wanted: Owner, *, adopts: bool = False) -> None:
    """Refuses what somebody else owns, or what has another key or mode, unless a person adopts it."""
    conflict = owner_conflict(found, wanted)
    if conflict and not adopts:
        raise EndpointError(
            f"sink {name}: {where} {conflict}: write to another table, or take this one over with --adopt "
            "once nobody else writes it"
        )


def refuse_rows_of_others(name: str, where: str, found: Owner | None, writer: str) -> None:
    """Refuses to take back rows in a place whose rows are another materialization's."""
    if found is not None:
        refuse_other(name, where, found, replace(found, materialization=writer))
