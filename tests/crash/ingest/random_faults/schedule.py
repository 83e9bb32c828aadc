"""Which faults follow upon each other: drawn from a seed, whatever comes of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

# How often each is drawn, in relation to the others.
_TROUBLES = {
    "nothing": 8,
    "the store is away": 1,
    "the store does not answer": 2,
    "the store is slow": 1,
    "the store hangs": 1,
    "the store fails now and then": 2,
    "the store keeps what it calls failed": 1,
    "the store lies": 1,
    "the catalog is away": 2,
    "the disk is full": 2,
    "the disk is slow": 1,
    "the disk fails": 2,
    "files stay": 1,
    "the server is frozen": 1,
    "the committer is frozen": 1,
    "the committer is killed": 1,
    "the committer is slow": 1,
    "the clock is set": 2,
}
_DAMAGES = {
    "nothing": 8,
    "power lost": 3,
    "torn files": 3,
    "folder moved": 1,
    "folder copied": 2,
    "folder lost": 3,
    "identity lost": 1,
    "old copy restored": 2,
    "segments lost": 2,
    "object damaged": 2,
    "store restored": 1,
    "catalog restored": 2,
}
_MOMENTS = {"after a notice": 4, "at a point": 3, "parked at a point": 3}
_COPIES = {"nothing": 5, "data": 3, "catalog": 2, "store": 1}
RESTORED = {"old copy restored": "data", "catalog restored": "catalog", "store restored": "store"}
"""Of which part a copy is needed."""
# What comes of a lie and of a lost disk together is nobody's promise.
WITH_A_LIE = {"nothing", "power lost", "torn files", "folder moved", "folder copied"}


@dataclass(frozen=True)
class Step:
    """What happens around one kill, or a few of them."""

    number: int
    trouble: str
    lasts: bool
    """The trouble is over only when the server was started again."""
    copies: str
    """Which part is copied, if any, before the trouble or after the kill."""
    copies_first: bool
    moment: str
    damage: str
    false_starts: int
    """How often the server is killed while it starts."""
    seed: int
    """Of what is drawn while it happens."""

    def __str__(self) -> str:
        copied = [] if self.copies == "nothing" else [f"{self.copies} copied"]
        parts = [
            *(copied if self.copies_first else []),
            f"{self.trouble}{' for long' if self.lasts else ''}",
            f"killed {self.moment}",
            *([] if self.copies_first else copied),
            self.damage,
            *([f"{self.false_starts} false starts"] if self.false_starts else []),
        ]
        return f"{self.number}. {'; '.join(parts)}"


def steps(seed: int) -> Iterator[Step]:
    """Without an end."""
    draw = random.Random(seed)
    kept: set[str] = set()
    number = 0
    while True:
        number += 1
        trouble = _drawn(_TROUBLES, draw)
        lasts = draw.random() < 0.4
        copies, moment, damage = (_drawn(some, draw) for some in (_COPIES, _MOMENTS, _DAMAGES))
        copies_first = draw.random() < 0.5
        if trouble == "the store lies" and damage not in WITH_A_LIE:
            damage = "nothing"
        if (part := RESTORED.get(damage)) and part not in kept:
            copies, copies_first = part, True
        kept.add(copies)
        false_starts = draw.choices([0, 1, 2], [7, 2, 1])[0]
        chance = draw.randrange(1 << 31)
        yield Step(number, trouble, lasts, copies, copies_first, moment, damage, false_starts, chance)


def _drawn(weights: dict[str, int], draw: random.Random) -> str:
    return draw.choices(list(weights), list(weights.values()))[0]
