"""The layout of a binding's prefix.

    data/000000000007-00000000-ffffffff-<id>.parquet    what readers read
    _staged/<owner>-00000000-ffffffff-<id>.parquet      what is not published yet
    _staged/<the same>.7.published                      says that it is; removed a transaction later
    _headrace/table-000001.json                         format, columns, owner; the highest number counts

Spark, pandas and pyarrow's datasets skip names that start with an underscore, so they can read the prefix.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.model.key_range import KeyRange

DATA, STAGED, ABOUT = "data", "_staged", "_headrace"
_MARKER_NAME = re.compile(r"(?P<staged>.+)\.(?P<number>\d+)\.published")
_STAGED_NAME = re.compile(r"(?P<owner>[0-9a-f]{16})-(?P<begin>[0-9a-f]{8})-(?P<end>[0-9a-f]{8})-.+")


@dataclass(frozen=True)
class StagedFile:
    """A file that a transaction staged for one binding, with its final location."""

    prefix: str
    staged: str
    published: str
    size: int
    rows: int

    @property
    def staged_path(self) -> str:
        return f"{self.prefix}/{STAGED}/{self.staged}"

    @property
    def marker_path(self) -> str:
        number = int(self.published.partition("-")[0])
        return f"{self.staged_path}.{number}.published"

    @property
    def published_path(self) -> str:
        return f"{self.prefix}/{DATA}/{self.published}"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @staticmethod
    def from_json(raw: Mapping[str, Any]) -> StagedFile:
        return StagedFile(
            str(raw["prefix"]), str(raw["staged"]), str(raw["published"]), int(raw["size"]), int(raw["rows"])
        )


def staged_name(materialization: str, key_range: KeyRange, unique: str, suffix: str) -> str:
    return f"{_owner(materialization)}-{key_range}-{unique}.{suffix}"


def published_name(number: int, key_range: KeyRange, unique: str, suffix: str) -> str:
    """Returns a name that sorts by number. The rest makes it unique, even if a log is lost and numbers
    repeat."""
    return f"{number:012}-{key_range}-{unique}.{suffix}"


def staged_range(name: str, materialization: str) -> KeyRange | None:
    """Returns the key range of the stream that left this object; None if it belongs to another
    materialization."""
    match = _STAGED_NAME.fullmatch(name)
    if match is None or match["owner"] != _owner(materialization):
        return None
    begin, end = int(match["begin"], 16), int(match["end"], 16)
    return KeyRange(begin, end) if begin <= end else None


def marked(name: str) -> tuple[str, int] | None:
    """Returns what a marker with this name refers to: the staged object, and the number of its
    transaction."""
    match = _MARKER_NAME.fullmatch(name)
    return (match["staged"], int(match["number"])) if match else None


def _owner(materialization: str) -> str:
    """Returns a stand-in for the name, which can be of any length and contain any character."""
    return hashlib.sha256(materialization.encode()).hexdigest()[:16]
