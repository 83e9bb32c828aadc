"""Fixtures as archives, and the folders that they are unpacked to.

Formats contain absolute paths: tables in their metadata, pipelines in their checkpoints. So on every machine
a fixture is opened under the path that it was made under, and its user holds a lock on that path.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FORMATS = Path(__file__).parent
VERSIONS = tuple(sorted(folder.name for folder in FORMATS.glob("v[0-9]*")))
_PLACES = Path("/tmp")
# Long ago, so that a program that removes old files removes them in its first test, not in a later year.
_WRITTEN_AT = 1_767_225_600
# Python before 3.11.4 has no filters, and 3.12 warns of their absence.
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def place_of(version: str, name: str) -> Path:
    return _PLACES / f"headrace-formats-{version}-{name}"


@contextmanager
def held(place: Path) -> Iterator[Path]:
    """Creates the folder for one process at a time and removes it at the end; other processes wait."""
    lock = place.with_name(f"{place.name}.lock")
    descriptor = _locked(lock)
    try:
        _clear(place)  # left by a process that was killed
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            _clear(place)
    finally:
        lock.unlink()
        os.close(descriptor)


@contextmanager
def unpacked(version: str, name: str) -> Iterator[Path]:
    """Yields the fixture, unpacked under the path that it was made under."""
    with held(place_of(version, name)) as place:
        with tarfile.open(FORMATS / version / f"{name}.tar.xz") as archive:
            archive.extractall(place, **_FILTER)
        yield place


def pack(folder: Path, archive: Path) -> None:
    """Packs a folder reproducibly: owner and time of the files do not change the archive."""
    with tarfile.open(archive, "w:xz", preset=9, format=tarfile.PAX_FORMAT) as packed:
        for path in sorted(folder.rglob("*")):
            packed.add(path, str(path.relative_to(folder)), recursive=False, filter=_anonymous)


def _anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = _WRITTEN_AT
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def _locked(path: Path) -> int:
    while True:
        descriptor = _opened(path)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except FileNotFoundError:
            pass  # the previous holder has removed it
        os.close(descriptor)


def _opened(path: Path) -> int:
    """Opens the file read-only and creates it only if it is missing: it may belong to another user."""
    while True:
        try:
            return os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            try:
                return os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL, 0o644)
            except FileExistsError:
                continue


def _clear(place: Path) -> None:
    if place.is_symlink() or (place.exists() and place.stat().st_uid != os.getuid()):
        raise PermissionError(f"{place} is not ours: have it removed")
    if place.exists():
        shutil.rmtree(place)
