"""COMMITTED is told before the table has it."""

from __future__ import annotations

from typing import Any

from headrace.ingest.commit_loop import CommitLoop
from headrace.wal.segments import Segment

_commit = CommitLoop._commit


def _told_first(self: CommitLoop, segments: list[Segment], names: set[str]) -> set[str]:
    for name in names:
        self._progress.advance_committed(name, segments[-1].last_lsn, None)
    return _commit(self, segments, names)


_patched: Any = CommitLoop
_patched._commit = _told_first
