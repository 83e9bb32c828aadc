"""Loaded into a server: notes down how much of each file of the log would outlive the machine's power.

What a failed sync was to write is taken to be gone for good, as it is on Linux, whatever later syncs say.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from headrace.faults import VARIABLE
from headrace.ingest.store import SegmentStore
from headrace.wal import recovery
from headrace.wal.files import Files
from headrace.wal.segments import segment_name

_FOLDER = Path(os.environ[VARIABLE]) / "synced"
_FOLDER.mkdir(exist_ok=True)
_paths: dict[int, Path] = {}
_failed: set[Path] = set()

_create, _sync, _recovery_sync, _fetch = Files.create, Files.sync, recovery._sync, SegmentStore.fetch


def _note(path: Path) -> None:
    if path not in _failed:
        _write(path, path.stat().st_size)


def _write(path: Path, length: int) -> None:
    """Whole, or not at all: the server may be killed at any moment."""
    file = _FOLDER / quote(str(path), safe="")
    aside = file.with_name("new")
    aside.write_text(str(length))
    aside.replace(file)


def _created(self: Files, path: Path) -> int:
    descriptor = _paths_of(_create(self, path), path)
    _write(path, 0)
    return descriptor


def _paths_of(descriptor: int, path: Path) -> int:
    _paths[descriptor] = path
    _failed.discard(path)
    return descriptor


def _synced(self: Files, descriptor: int) -> None:
    try:
        _sync(self, descriptor)
    except OSError:
        _failed.add(_paths[descriptor])
        raise
    _note(_paths[descriptor])


def _recovered(path: Path) -> None:
    _recovery_sync(path)
    _note(path)


def _fetched(self: SegmentStore, number: int, folder: Path) -> None:
    _fetch(self, number, folder)
    _note(folder / segment_name(number))


_patched: Any = Files
_patched.create, _patched.sync = _created, _synced
recovery._sync = _recovered
_patched = SegmentStore
_patched.fetch = _fetched
