"""Invariant 8 of docs/invariants.md: a segment after a failed sync."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from headrace.wal.files import Files
from tests.wal.support import OpenLog, lsns_in


class FailingOnce(Files):
    """Real files, of which one sync fails; records what is done with that file afterwards."""

    def __init__(self) -> None:
        self.fails_next = False
        self.failed = ""
        self.used_again: list[str] = []
        self._paths: dict[int, Path] = {}

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self._paths[descriptor] = path
        self._note("create", descriptor)
        return descriptor

    def write(self, descriptor: int, data: bytes) -> None:
        self._note("write", descriptor)
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._note("sync", descriptor)
        if self.fails_next:
            self.fails_next = False
            self.failed = self._paths[descriptor].name
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(descriptor)

    def _note(self, what: str, descriptor: int) -> None:
        if self._paths[descriptor].name == self.failed:
            self.used_again.append(what)


def test_a_segment_whose_sync_failed_is_abandoned(tmp_path: Path) -> None:
    """Invariant 8. The kernel may have dropped the pages, and a second sync would succeed without them."""
    files = FailingOnce()
    with OpenLog(tmp_path, files=files) as log:
        log.synced_write(1)
        failing, _ = log.writer.open_segment
        files.fails_next = True
        log.synced_write(2)
        goes_on, _ = log.writer.open_segment
    assert files.failed == failing.name
    assert files.used_again == []
    assert goes_on != failing
    assert lsns_in(tmp_path) == [1, 2]
