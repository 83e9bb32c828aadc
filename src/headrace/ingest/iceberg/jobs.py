"""The jobs that the server sends to the committer's process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.wal.position import LogPosition, SegmentMark
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
    term: int = 0
    boot: str = ""
    """Identifies the run of the server; the table records it."""
    after: Mapping[str, LogPosition] = field(default_factory=dict)
    """The positions of the tables that the server knows. A commit continues from there and from nowhere else;
    a table that is not named is not checked."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Up to where a person has given up the writes of a collection: they are not committed, though they may
    be in the segments."""
    mark: SegmentMark | None = None
    """The segment that tables record as the last one; None: the last one of these."""

    def to_json(self) -> dict[str, Any]:
        return {
            "segments": [[str(segment.path), segment.length] for segment in self.segments],
            "through": self.through,
            "collections": [collection.to_json() for collection in self.collections],
            "log_id": self.log_id,
            "term": self.term,
            "boot": self.boot,
            "after": {name: position.to_json() for name, position in self.after.items()},
            "dropped": dict(self.dropped),
            "mark": str(self.mark) if self.mark else None,
        }

    @staticmethod
    def from_json(raw: dict[str, Any]) -> CommitJob:
        return CommitJob(
            segments=tuple(SegmentPart(Path(path), length) for path, length in raw["segments"]),
            through=raw["through"],
            collections=tuple(CollectionState.from_json(collection) for collection in raw["collections"]),
            log_id=raw["log_id"],
            term=raw["term"],
            boot=raw["boot"],
            after={name: LogPosition.from_json(position) for name, position in raw["after"].items()},
            dropped=raw["dropped"],
            mark=SegmentMark.parse(raw["mark"]) if raw["mark"] else None,
        )
