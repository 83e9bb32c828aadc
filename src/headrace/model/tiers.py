"""The tiers that a write passes on its way, each a promise of its own."""

from __future__ import annotations

from enum import IntEnum

from headrace.errors import ConfigError


class Tier(IntEnum):
    """How far a write has come; a higher tier includes the ones below it."""

    MEMORY = 0
    """Accepted by the server. Lost if its process ends."""
    LOCAL_DISK = 1
    """In the write-ahead log, synced. Survives the process."""
    OBJECT_STORAGE = 2
    """In the object store. Survives the machine."""
    COMMITTED = 3
    """In a snapshot of the collection's Iceberg table. Seen by every reader of the table."""

    @staticmethod
    def parse(text: str | Tier) -> Tier:
        """A tier by its name, in any case."""
        if isinstance(text, Tier):
            return text
        try:
            return Tier[str(text).upper()]
        except KeyError:
            names = ", ".join(tier.name for tier in Tier)
            raise ConfigError(f"{text!r} is not a durability level: {names}") from None
