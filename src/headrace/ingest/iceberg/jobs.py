"""What the server asks of the committer's process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.wal.state import CollectionState


@dataclass(frozen=True, slots=True)
class SegmentPart:
    """A segment file, and how many bytes of it count."""

    path: Path
    length: int


@dataclass(frozen=True, slots=True)
class CommitJob:
    """Bring the tables of these collections to an LSN.

    The segments hold every write of these collections from their tables' watermarks to `through`.
    """

    segments: tuple[SegmentPart, ...]
    through: int
    collections: tuple[CollectionState, ...]
    log_id: str = ""
    """Identifies the log that the LSNs belong to. A table that was written from another one is refused, since
    its watermark says nothing about these LSNs. Empty: not checked."""

    def to_json(self) -> dict[str, Any]:
        return {
            "segments": [[str(segment.path), segment.length] for segment in self.segments],
            "through": self.through,
            "collections": [collection.to_json() for collection in self.collections],
            "log_id": self.log_id,
        }

    @staticmethod
    def from_json(raw: dict[str, Any]) -> CommitJob:
        return CommitJob(
            segments=tuple(SegmentPart(Path(path), length) for path, length in raw["segments"]),
            through=raw["through"],
            collections=tuple(CollectionState.from_json(collection) for collection in raw["collections"]),
            log_id=raw["log_id"],
        )
