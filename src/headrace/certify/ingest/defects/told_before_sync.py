"""LOCAL_DISK is told of a write as soon as it has its LSN."""

from __future__ import annotations

from typing import Any

from headrace.wal.groups import Entry
from headrace.wal.writer import LogWriter

_append = LogWriter.append


def _told_first(self: LogWriter, entry: Entry) -> int:
    lsn = _append(self, entry)
    self._on_durable(lsn + entry.count - 1)
    return lsn


_patched: Any = LogWriter
_patched.append = _told_first
