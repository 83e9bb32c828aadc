"""What a server stands on: its store and its catalog, which go away and come back.

They are a folder of objects and an SQLite file, which are also copied, restored and damaged, or a real S3
server and a real REST catalog, behind relays.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.certify.ingest.surroundings import Surroundings
from headrace.certify.proxy import Proxy

Outage = Callable[[], AbstractContextManager[None]]
# A port that nothing listens on.
NOBODY = 1
_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


@dataclass(frozen=True)
class Outside:
    surroundings: Surroundings
    store_outages: Mapping[str, Outage]
    catalog_outages: Mapping[str, Outage]
    objects: Path | None = None
    """The folder that is the store, if it is one."""
    catalog_file: Path | None = None
    """The file that is the catalog, if it is one."""
    blocked: list[str] = field(default_factory=list)
    """Outages that last at the moment, in which the tables cannot be read."""


def folders_of(surroundings: Surroundings) -> Outside:
    lake = surroundings.folder / "lake"
    objects, catalog = lake / "objects", lake / "catalog.db"
    blocked: list[str] = []
    return Outside(
        surroundings,
        {"is gone": lambda: _replaced_by_file(objects)},
        {
            "is gone": lambda: _noted(blocked, _replaced_by_folder(catalog)),
            "is locked": lambda: _noted(blocked, _locked(catalog)),
        },
        objects,
        catalog,
        blocked,
    )


def servers(surroundings: Surroundings, to_store: Proxy, to_catalog: Proxy) -> Outside:
    blocked: list[str] = []
    return Outside(
        surroundings,
        {
            "refuses": lambda: _noted(blocked, _refusing(to_store)),
            "stalls": lambda: _noted(blocked, _stalled(to_store)),
        },
        {
            "refuses": lambda: _noted(blocked, _refusing(to_catalog)),
            "stalls": lambda: _noted(blocked, _stalled(to_catalog)),
        },
        blocked=blocked,
    )


@contextmanager
def _noted(blocked: list[str], outage: AbstractContextManager[None]) -> Iterator[None]:
    with outage:
        blocked.append("outage")
        try:
            yield
        finally:
            blocked.remove("outage")


@contextmanager
def _replaced_by_file(folder: Path) -> Iterator[None]:
    other = folder.with_name(f"{folder.name}-away")
    other.touch()
    with _exchanged(folder, other):
        yield
    other.unlink()


@contextmanager
def _replaced_by_folder(file: Path) -> Iterator[None]:
    other = file.with_name(f"{file.name}-away")
    other.mkdir()
    with _exchanged(file, other):
        yield
    other.rmdir()


@contextmanager
def _exchanged(one: Path, other: Path) -> Iterator[None]:
    """In one step: a server that found nothing there might begin anew."""
    _exchange(one, other)
    try:
        yield
    finally:
        _exchange(one, other)


def _exchange(one: Path, other: Path) -> None:
    names = (os.fsencode(path) for path in (one, other))
    first, second = names
    if ctypes.CDLL(None, use_errno=True).renameat2(_AT_FDCWD, first, _AT_FDCWD, second, _RENAME_EXCHANGE):
        raise OSError(ctypes.get_errno(), f"cannot exchange {one} and {other}")


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with closing(sqlite3.connect(file, timeout=60, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def _refusing(way: Proxy) -> Iterator[None]:
    target, way.target = way.target, ("127.0.0.1", NOBODY)
    way.cut()
    try:
        yield
    finally:
        way.target = target


@contextmanager
def _stalled(way: Proxy) -> Iterator[None]:
    way.stall()
    try:
        yield
    finally:
        way.heal()
