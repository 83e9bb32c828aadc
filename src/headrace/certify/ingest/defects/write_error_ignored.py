"""The error of a write to the log is ignored."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from headrace.wal.files import Files

_write = Files.write


def _in_any_case(self: Files, descriptor: int, data: bytes) -> None:
    with suppress(OSError):
        _write(self, descriptor, data)


_patched: Any = Files
_patched.write = _in_any_case
