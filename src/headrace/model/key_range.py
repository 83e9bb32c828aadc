"""Ranges of key hashes; a shard of a materialization is responsible for one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import ConfigError

MAX_KEY_HASH = 0xFFFFFFFF


@dataclass(frozen=True, order=True)
class KeyRange:
    """The hashes from `begin` to `end`, inclusive, of 32 bits each."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.begin <= self.end <= MAX_KEY_HASH:
            raise ConfigError(
                f"key range {self.begin:#x} to {self.end:#x} is not one: "
                f"it needs 0 <= begin <= end <= {MAX_KEY_HASH:#x}"
            )

    def __str__(self) -> str:
        return f"{self.begin:08x}-{self.end:08x}"

    def overlaps(self, other: KeyRange) -> bool:
        return self.begin <= other.end and other.begin <= self.end

    def intersection(self, other: KeyRange) -> KeyRange | None:
        if not self.overlaps(other):
            return None
        return KeyRange(max(self.begin, other.begin), min(self.end, other.end))

    def without(self, others: Iterable[KeyRange]) -> list[KeyRange]:
        """Returns the parts of this range, in order, that none of `others` covers."""
        left: list[KeyRange] = []
        begin = self.begin
        for other in sorted(others):
            if other.end < begin or other.begin > self.end:
                continue
            if other.begin > begin:
                left.append(KeyRange(begin, other.begin - 1))
            begin = other.end + 1
        if begin <= self.end:
            left.append(KeyRange(begin, self.end))
        return left


FULL_RANGE = KeyRange(0, MAX_KEY_HASH)
