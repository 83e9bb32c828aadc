"""The tiers of durability that a write passes, each with its own promise."""

from __future__ import annotations

from enum import IntEnum

from headrace.errors import ConfigError


class Tier(IntEnum):
    """How far a write has come. A higher tier includes the lower ones."""

    MEMORY = 0
    """The server has accepted it. It is lost if the process ends."""
    LOCAL_DISK = 1
    """It is synced in the write-ahead log. It survives the process."""
    OBJECT_STORAGE = 2
    """It is in the object store. It survives the machine."""
    COMMITTED = 3
    """It is in a snapshot of the collection's Iceberg table. Every reader of the table sees it."""

    @staticmethod
    def parse(text: str | Tier) -> Tier:
        """Parses the name of a tier, in any case."""
        if isinstance(text, Tier):
            return text
        try:
            return Tier[str(text).upper()]
        except KeyError:
            names = ", ".join(tier.name for tier in Tier)
            raise ConfigError(f"{text!r} is not a durability level: {names}") from None
