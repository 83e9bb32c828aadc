"""How far a certification has come, for whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

Told = Callable[[str, float], None]
"""Is given what is being done, and how much of all that is behind it, from 0 to 1."""


class Progress:
    """Parts one after the other, each as long as its weight says."""

    def __init__(self, told: Told, weights: Mapping[str, float]) -> None:
        self._told, self._weights = told, dict(weights)
        self._whole = sum(self._weights.values()) or 1.0

    def part(self, name: str) -> Steps:
        """Those before it are over when its steps begin."""
        names = list(self._weights)
        before = sum(self._weights[one] for one in names[: names.index(name)])
        weight = self._weights[name]

        def told(text: str, share: float) -> None:
            self._told(f"{name}: {text}", (before + weight * share) / self._whole)

        return Steps(told)


class Steps:
    """Called with what is begun. How many there will be is known once `expect` has said so."""

    def __init__(self, told: Told) -> None:
        self._told = told
        self._lock = Lock()
        self._begun, self._total = 0, 1

    def expect(self, total: int) -> None:
        self._total = max(1, total)

    def __call__(self, text: str) -> None:
        with self._lock:
            share = min(1.0, self._begun / self._total)
            self._begun += 1
            self._told(text, share)

    def at(self, text: str, share: float) -> None:
        """Where time says how far it is, not the number of steps."""
        with self._lock:
            self._told(text, min(1.0, share))
