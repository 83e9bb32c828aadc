"""Loaded into a server: notes down how much of each file of the log would outlive the machine's power.

What a failed sync was to write is taken to be gone for good, as it is on Linux, whatever later syncs say.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.faults import VARIABLE
from headrace.ingest.log import FaultPoints, seeded
from headrace.ingest.store import SegmentStore
from headrace.wal import recovery
from headrace.wal.segments import segment_name

_FOLDER = Path(os.environ[VARIABLE]) / "synced"
_FOLDER.mkdir(exist_ok=True)
_failed: set[Path] = set()

_recovery_sync, _fetch = recovery._sync, SegmentStore.fetch


def _note(path: Path) -> None:
    if path not in _failed:
        _write(path, path.stat().st_size)


def _write(path: Path, length: int) -> None:
    """Whole, or not at all: the server may be killed at any moment."""
    file = _FOLDER / quote(str(path), safe="")
    aside = file.with_name("new")
    aside.write_text(str(length))
    aside.replace(file)


class _Recorder(FaultPoints):
    def created(self, path: str) -> None:
        _failed.discard(Path(path))
        _write(Path(path), 0)

    def synced(self, path: str, failed: bool) -> None:
        if failed:
            _failed.add(Path(path))
        _note(Path(path))


def _recovered(path: Path) -> None:
    _recovery_sync(path)
    _note(path)


def _fetched(self: SegmentStore, number: int, folder: Path) -> None:
    _fetch(self, number, folder)
    _note(folder / segment_name(number))


seeded.hooks = _Recorder()
recovery._sync = _recovered
_patched: Any = SegmentStore
_patched.fetch = _fetched
