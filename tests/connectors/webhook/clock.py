"""A clock that tests control."""

from __future__ import annotations

from headrace.connectors.webhook.retries import Retries


class Clock:
    """A clock that advances only while somebody sleeps."""

    def __init__(self, chance: float = 1.0) -> None:
        self.now = 100.0
        self.pauses: list[float] = []
        self._chance = chance

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds

    def retries(self, retry_for: float) -> Retries:
        return Retries(retry_for, lambda: self.now, self.sleep, lambda: self._chance)
