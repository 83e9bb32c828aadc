"""Loaded into a server: the disk of its log is full for as long as there is a file that says so."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from headrace.certify.ingest.disk import FULL
from headrace.faults import VARIABLE
from headrace.ingest.disk_space import DiskSpace
from headrace.ingest.log import FaultPoints, Hooks, seeded

_file = Path(os.environ[VARIABLE]) / FULL
_POINTS = ("wal creating", "wal writing")
_init = DiskSpace.__init__


class _FullDisk:
    """Hooks that refuse what takes room, and pass everything else on."""

    def __init__(self, others: Hooks) -> None:
        self._others = others

    def reached(self, point: str) -> None:
        if point in _POINTS and _file.exists():
            raise OSError(errno.ENOSPC, "as if there were no room")
        self._others.reached(point)

    def created(self, path: str) -> None:
        self._others.created(path)

    def synced(self, path: str, failed: bool) -> None:
        self._others.synced(path, failed)


def _initialized(self: Any, *arguments: Any, **named: Any) -> None:
    _init(self, *arguments, **named)
    room = self._room

    def left(folder: Path) -> tuple[int, int]:
        free, size = room(folder)
        return (0 if _file.exists() else free), size

    self._room = left


seeded.hooks = _FullDisk(seeded.hooks or FaultPoints())
_patched: Any = DiskSpace
_patched.__init__ = _initialized
