"""How well a server's object store behaves."""

from __future__ import annotations

from enum import StrEnum

from headrace.faults import Faults

MODULE = "headrace.certify.ingest.unreliable_store"
"""To be loaded into the server."""
MANNERS = "store-manners"


class Manners(StrEnum):
    GOOD = "good"
    AWAY = "away"
    """Every call fails."""
    SLOW = "slow"
    FLAKY = "flaky"
    """Every second call fails, half of them after they were done."""
    LYING = "lying"
    """Puts succeed, and nothing is there, or not all of it."""


def set_manners(faults: Faults, manners: Manners) -> None:
    file = faults.folder / MANNERS
    aside = file.with_name(f"{MANNERS}.new")
    aside.write_text(manners)
    aside.replace(file)
