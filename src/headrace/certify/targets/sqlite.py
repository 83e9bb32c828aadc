"""SQLite: a database for each lane, so that one is restored without the others."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar

from headrace.certify.targets.documents_of import DOCUMENT, viewed
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.target import COPIES, SAVED, VIEW, Place, Rows, Target

_TABLE = "events"
_BUSY = 60.0
"""Seconds to wait while a writer has the database to itself."""


class SqliteTarget(Target):
    name = "sqlite"
    commits_in_tasks: ClassVar[bool] = True
    can_restore = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, lane: str) -> Place:
        self._folder.mkdir(parents=True, exist_ok=True)
        endpoint = {"connector": "sqlite", "config": {"path": str(self._path(lane))}}
        return Place(endpoint, {"resource": {"table": _TABLE}, "fields": {"include": [DOCUMENT]}})

    def read(self, lane: str) -> Mapping[str, Rows]:
        return {VIEW: steadily(lambda: self._read(self._path(lane)))}

    def _read(self, path: Path) -> Rows:
        if not path.exists():
            return Rows()
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_BUSY)) as database:
            known = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_TABLE,)).fetchone()
            found = database.execute(f"SELECT {DOCUMENT} FROM {_TABLE}") if known else ()  # noqa: S608 - our own names
            return viewed({DOCUMENT: text} for (text,) in found)

    def save(self, lane: str, copy: str = SAVED) -> None:
        """By SQLite's own way, which has what is in the write-ahead log as well."""
        saved = self._saved(lane, copy)
        _remove(saved)
        if not self._path(lane).exists():
            return
        with closing(sqlite3.connect(self._path(lane))) as database, closing(sqlite3.connect(saved)) as kept:
            database.backup(kept)

    def restore(self, lane: str, copy: str = SAVED) -> None:
        """A write-ahead log that stayed would be taken for this database's."""
        _remove(self._path(lane))
        if self._saved(lane, copy).exists():
            shutil.copyfile(self._saved(lane, copy), self._path(lane))

    def remove(self, lane: str) -> None:
        for path in (self._path(lane), *(self._saved(lane, copy) for copy in COPIES)):
            _remove(path)

    def _path(self, lane: str) -> Path:
        return (self._folder / f"{lane}.db").absolute()

    def _saved(self, lane: str, copy: str) -> Path:
        return self._path(lane).with_suffix(f".{copy}")


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
