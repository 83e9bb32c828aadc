"""Whose a target is: a table, folder, topic or key space that rows are written to.

A target says itself who writes it. The same name is not the same thing: a table may belong to somebody else,
or may have been dropped and created again. What it says lives and dies with it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    VIEW = "view"
    """One row for each key."""
    APPEND = "append"


@dataclass(frozen=True)
class Owner:
    """Who writes a target, and how."""

    materialization: str
    lineage: str
    """Of the query whose epochs are in it; another one, also under the same name, numbers its epochs anew."""
    key: tuple[str, ...]
    """The columns of the key; empty where rows are appended without one."""
    mode: Mode

    def encode(self) -> str:
        """One line of ASCII without control characters."""
        said = {
            "materialization": self.materialization,
            "lineage": self.lineage,
            "key": list(self.key),
            "mode": self.mode.value,
        }
        return json.dumps(said, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> Owner:
        """Raises `ValueError` for what `encode` has not written."""
        try:
            raw = json.loads(text)
            return cls(str(raw["materialization"]), str(raw["lineage"]), tuple(raw["key"]), Mode(raw["mode"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not the mark of an owner: {text!r}") from error


@dataclass(frozen=True)
class Target:
    """What is in a place before anything is changed there."""

    exists: bool
    has_rows: bool = False
    owner: Owner | None = None
    """None if it says nothing: it was never written, or by a version before this one, or by others."""


def owner_conflict(found: Owner | None, wanted: Owner) -> str:
    """Why `wanted` must not write what `found` owns, as the end of a sentence; empty if it may.

    Only names, keys and modes are compared. Lineages mean something beside checkpoints alone.
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
