"""Counts and latencies of streams of writes; `headrace.observe` publishes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from headrace._native import StreamStatistics
from headrace.model.tiers import Tier


@dataclass(slots=True)
class Statistics:
    """The counts of one stream, or of all streams, including those that have ended."""

    writes: int = 0
    rows: int = 0
    bytes: int = 0
    duplicates: int = 0
    refused: int = 0
    """Streams that ended with an error of ours."""
    acks: int = 0
    throttled: int = 0
    """How often a stream was made to wait."""
    disconnects: int = 0
    """Streams that ended without the client having said that it is done."""
    write_seconds: Sequence[float] = ()
    """From the arrival of a message until it got its LSNs; the latest ones of all streams."""
    ack_seconds: Sequence[float] = ()
    """From a message's LSN until its first acknowledgement was handed over; the latest of all streams."""

    @staticmethod
    def of(
        counted: StreamStatistics, write_seconds: Sequence[float] = (), ack_seconds: Sequence[float] = ()
    ) -> Statistics:
        return Statistics(
            counted.writes,
            counted.rows,
            counted.bytes,
            counted.duplicates,
            counted.refused,
            counted.acks,
            counted.throttled,
            counted.disconnects,
            write_seconds,
            ack_seconds,
        )


@dataclass(frozen=True, slots=True)
class Stream:
    """A stream of writes that is open."""

    id: int
    peer: str
    collection: str
    producer: str
    statistics: Statistics
    throttled: str | None
    """Why it is not read now, if so."""
    not_announced: dict[Tier, int] = field(default_factory=dict)

    def pending(self, tier: Tier) -> int:
        """Returns how many writes are not yet announced at a tier."""
        return self.not_announced.get(tier, 0)

    def to_json(self) -> dict[str, Any]:
        """Returns what the server's health says of it."""
        return {
            "peer": self.peer,
            "collection": self.collection,
            "producer": self.producer or None,
            "writes": self.statistics.writes,
            "throttled": self.throttled,
        }
