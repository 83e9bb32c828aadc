"""Loaded into a server: its object store is as bad as a file says, from the next call on."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.certify.ingest.store_manners import MANNERS, Manners
from headrace.errors import EndpointUnavailable
from headrace.faults import VARIABLE
from headrace.objects import ObjectStore

_SEGMENTS = "wal/"
_SLOWEST_SECONDS = 0.3
_file = Path(os.environ[VARIABLE]) / MANNERS
_speaking, _put = ObjectStore._speaking, ObjectStore._put
_draw = random.Random()  # noqa: S311


def _manners() -> Manners:
    try:
        return Manners(_file.read_text())
    except FileNotFoundError:
        return Manners.GOOD


@contextmanager
def _badly(self: ObjectStore, what: str) -> Iterator[None]:
    manners, luck = _manners(), _draw.random()
    if manners is Manners.AWAY or (manners is Manners.FLAKY and luck < 0.25):
        raise EndpointUnavailable(f"store {self.url} cannot {what}: as if it were away")
    if manners is Manners.SLOW:
        time.sleep(luck * _SLOWEST_SECONDS)
    with _speaking(self, what):
        yield
    if manners is Manners.FLAKY and luck > 0.75:
        raise EndpointUnavailable(f"store {self.url} cannot {what}: as if its answer were lost")


def _put_badly(self: ObjectStore, path: str, data: bytes | memoryview, what: str, mode: Any) -> str:
    if _manners() is Manners.LYING and path.startswith(_SEGMENTS):
        if _draw.random() < 0.5:
            return ""
        data = bytes(data)[: _draw.randrange(len(data))]
    return _put(self, path, data, what, mode)


_patched: Any = ObjectStore
_patched._speaking, _patched._put = _badly, _put_badly
