"""A place in the log, as a table or the low-water mark records it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class SegmentMark:
    """Tells a sealed segment from every other, also from one of its number in a copy of the log."""

    number: int
    nonce: int
    length: int

    def __str__(self) -> str:
        return f"{self.number}/{self.nonce:016x}/{self.length}"

    @staticmethod
    def parse(text: str) -> SegmentMark:
        """Raises ValueError on anything that `str` does not write."""
        number, nonce, length = text.split("/")
        return SegmentMark(int(number), int(nonce, 16), int(length))


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The end of a commit: all writes of a collection at or below the LSN are in the table.

    A bare LSN says little. After a restore two histories may have used the same one for different writes; the
    segment in which the commit ended tells them apart.
    """

    lsn: int = 0
    term: int | None = None
    boot: str = ""
    """Identifies the run of the server that committed."""
    segment: SegmentMark | None = None
    """None, like the term, in a table that an older version committed to last."""

    def to_json(self) -> dict[str, Any]:
        segment = str(self.segment) if self.segment else None
        return {"lsn": self.lsn, "term": self.term, "boot": self.boot, "segment": segment}

    @staticmethod
    def from_json(raw: dict[str, Any]) -> LogPosition:
        """Raises ValueError, TypeError or KeyError on anything that `to_json` does not return."""
        segment = raw["segment"]
        mark = None if segment is None else SegmentMark.parse(segment)
        return LogPosition(int(raw["lsn"]), raw["term"], str(raw["boot"]), mark)

    def __str__(self) -> str:
        return f"LSN {self.lsn}" + (f" in segment {self.segment.number}" if self.segment else "")
