"""Ownership of a target: a table, folder, topic or key space that rows are written to.

The owner is recorded in the target itself. A name does not identify a target: a table may belong to somebody
else, or may have been dropped and recreated. The record is dropped and restored together with the target.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    VIEW = "view"
    """The target has one row per key."""
    APPEND = "append"


@dataclass(frozen=True)
class Owner:
    """The materialization that writes a target, and its key and mode."""

    materialization: str
    lineage: str
    """The lineage of the query whose epochs are in the target. Another lineage numbers its epochs anew, even
    under the same name."""
    key: tuple[str, ...]
    """The columns of the key; empty if rows are appended without one."""
    mode: Mode

    def encode(self) -> str:
        """Encodes the owner as one line of ASCII without control characters."""
        said = {
            "materialization": self.materialization,
            "lineage": self.lineage,
            "key": list(self.key),
            "mode": self.mode.value,
        }
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Owner:
        """Raises `ValueError` for text that `encode` has not written."""
        try:
            raw = json.loads(text)
            return cls(str(raw["materialization"]), str(raw["lineage"]), tuple(raw["key"]), Mode(raw["mode"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the mark of an owner: {text!r}") from error


@dataclass(frozen=True)
class Target:
    """The state of a target before anything is changed there."""

    exists: bool
    has_rows: bool = False
    owner: Owner | None = None
    """None if the target records no owner: it was never written, or by an earlier version, or by others."""


def owner_conflict(found: Owner | None, wanted: Owner) -> str:
    """Returns why `wanted` must not write what `found` owns, as the end of a sentence; empty if it may.

    Only names, keys and modes are compared. Lineages are meaningful only together with checkpoints.
    """
    if found is None:
        return ""
    if found.materialization != wanted.materialization:
        return f"is written by materialization {found.materialization!r}"
    if found.mode is not wanted.mode:
        return f"is written as {_kept(found.mode)}, and would be as {_kept(wanted.mode)}"
    if found.key != wanted.key:
        return f"has the key {_named(found.key)}, and would get {_named(wanted.key)}"
    return ""


def _kept(mode: Mode) -> str:
    return "a view" if mode is Mode.VIEW else "appended rows"


def _named(key: Sequence[str]) -> str:
    return f"({', '.join(key)})"
