"""The error of a sync is ignored."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from headrace.wal.files import Files

_sync = Files.sync


def _in_any_case(self: Files, descriptor: int) -> None:
    with suppress(OSError):
        _sync(self, descriptor)


_patched: Any = Files
_patched.sync = _in_any_case
