"""The connector checkpoint: the files that the last transaction of each range staged, by range.

    {"00000000-ffffffff": {"number": 7, "files": [{"prefix": "orders", "staged": ..., "published": ...}]}}

A range that splits gives its checkpoint to its parts, and ranges that join bring theirs together. So each
stream publishes what is named for any range, and from its first transaction on names its own range alone.
Numbers go up from each transaction to the next of the same keys, across splits and joins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.connectors.files.layout import StagedFile
from headrace.errors import ConfigError, EndpointError
from headrace.model.checkpoints import JsonObject
from headrace.model.key_range import KeyRange


@dataclass(frozen=True)
class Committed:
    """The last transaction of a range."""

    key_range: KeyRange
    number: int
    files: tuple[StagedFile, ...]


class Checkpoint:
    """The state in the recovery log, or the one that will be there once the last `advance` is recorded."""

    def __init__(self, raw: JsonObject | None, key_range: KeyRange) -> None:
        self._key_range, self._own = key_range, str(key_range)
        self._ranges = {name: _read(name, entry) for name, entry in (raw or {}).items()}

    @property
    def files(self) -> list[StagedFile]:
        """Returns all files that are to be published, or were already."""
        return [file for committed in self._ranges.values() for file in committed.files]

    @property
    def own_files(self) -> list[StagedFile]:
        """Returns the files that a stream of exactly this range staged."""
        committed = self._ranges.get(self._own)
        return list(committed.files) if committed else []

    @property
    def next_number(self) -> int:
        return max((committed.number for committed in self._ranges.values()), default=0) + 1

    def is_past(self, key_range: KeyRange, number: int) -> bool:
        """Returns whether all keys of a range have had a later transaction, according to the recovery log.

        An outdated checkpoint, of a stream that was replaced, returns True for fewer transactions but never
        wrongly.
        """
        return any(
            committed.number > number and committed.key_range.intersection(key_range) == key_range
            for committed in self._ranges.values()
        )

    def advance(self, files: Sequence[StagedFile]) -> JsonObject:
        """Records the next transaction, and returns the merge patch for it."""
        committed = Committed(self._key_range, self.next_number, tuple(files))
        others = dict.fromkeys(name for name in self._ranges if name != self._own)
        self._ranges = {self._own: committed}
        entry = {"number": committed.number, "files": [file.to_json() for file in committed.files]}
        return {**others, self._own: entry}


def _read(name: str, entry: Any) -> Committed:
    try:
        files: Sequence[Mapping[str, Any]] = entry["files"]
        begin, end = (int(part, 16) for part in name.split("-"))
        named = tuple(map(StagedFile.from_json, files))
        return Committed(KeyRange(begin, end), int(entry["number"]), named)
    except (TypeError, KeyError, ValueError, AttributeError, ConfigError):
        raise EndpointError(
            f"the connector checkpoint's entry {name!r} was not written by the files connector: "
            "give the materialization a new name, or its own recovery log"
        ) from None
