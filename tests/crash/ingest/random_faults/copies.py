"""Copies of the parts of a server, which are restored later."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

Promise = tuple[str, int]
"""A write that was told to be at LOCAL_DISK, and the LSN under which."""


@dataclass(frozen=True)
class Kept:
    """A copy of one part."""

    path: Path
    promises: frozenset[Promise]
    """What LOCAL_DISK had been told of before."""
    starts: int
    """How often the server had been started."""


class Copies:
    """Of the parts of a server, made now and then, of which the last one may be restored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._kept: dict[str, Kept] = {}

    def make(self, part: str, of: Path, promises: set[Promise], starts: int) -> None:
        """In the place of the copy before, if there is one. The promises are from before the call."""
        target = self._folder / f"copy-of-{of.name}"
        copy(of, target)
        self._kept[part] = Kept(target, frozenset(promises), starts)

    def get(self, part: str) -> Kept | None:
        return self._kept.get(part)


def copy(source: Path, target: Path) -> None:
    """Perhaps of what is in use: a database is copied whole, and of a folder files may go meanwhile."""
    remove(target)
    if source.suffix == ".db":
        with closing(sqlite3.connect(source, timeout=60)) as here, closing(sqlite3.connect(target)) as there:
            here.backup(there)
        return
    if source.is_file():
        shutil.copy2(source, target)
        return
    target.mkdir()
    for path in sorted(source.iterdir()):
        with suppress(FileNotFoundError):
            copy(path, target / path.name)


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
