"""Fixtures as archives, and the places that they are unpacked to.

Formats keep absolute paths: tables in their metadata, pipelines in their checkpoints. So a fixture is opened
in the same place as it was made in, on every machine, and whoever uses that place holds a lock.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FORMATS = Path(__file__).parent
VERSIONS = tuple(sorted(folder.name for folder in FORMATS.glob("v[0-9]*")))
_PLACES = Path("/tmp")
# Long ago: what a program removes because it is old is removed in the first test of it, not in a later year.
_WRITTEN_AT = 1_767_225_600


def place_of(version: str, name: str) -> Path:
    return _PLACES / f"headrace-formats-{version}-{name}"


@contextmanager
def held(place: Path) -> Iterator[Path]:
    """Makes the folder for one process at a time, and removes it in the end; others wait for it."""
    lock = place.with_name(f"{place.name}.lock")
    descriptor = _locked(lock)
    try:
        _clear(place)  # who was killed has left it
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
    """The fixture in its place."""
    with held(place_of(version, name)) as place:
        with tarfile.open(FORMATS / version / f"{name}.tar.xz") as archive:
            archive.extractall(place, filter="data")
        yield place


def pack(folder: Path, archive: Path) -> None:
    """The same folder makes the same archive, whoever owns it and whenever it was written."""
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
            pass  # who had it before has removed it
        os.close(descriptor)


def _opened(path: Path) -> int:
    """To read, and made only if it is missing: it may be another user's, in a folder of everybody's."""
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
