"""Counts and latencies that sessions keep of themselves; `headrace.observe` publishes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

_RECENT = 8192


def _recent() -> deque[float]:
    return deque(maxlen=_RECENT)


@dataclass(slots=True)
class Statistics:
    """Of one session, or the sum of many. The threads that write for a session write different fields."""

    writes: int = 0
    rows: int = 0
    bytes: int = 0
    duplicates: int = 0
    refused: int = 0
    """Streams that ended with an error of ours."""
    acks: int = 0
    throttled: int = 0
    """How often the session was made to wait."""
    disconnects: int = 0
    """Streams that ended without the client having said that it is done."""
    write_seconds: deque[float] = field(default_factory=_recent)
    """From the arrival in our code of the oldest of the messages that got their LSNs together until they did;
    the latest ones."""
    ack_seconds: deque[float] = field(default_factory=_recent)
    """From a message's LSN until its first acknowledgement was handed to gRPC; the latest ones."""

    @staticmethod
    def sum(parts: Iterable[Statistics]) -> Statistics:
        total = Statistics()
        for part in parts:
            for of in fields(Statistics):
                mine, its = getattr(total, of.name), getattr(part, of.name)
                if isinstance(mine, deque):
                    mine.extend(list(its))
                else:
                    setattr(total, of.name, mine + its)
        return total
