"""The few calls by which the log reaches the disk; a test puts a failing disk in their place."""

from __future__ import annotations

import os
from pathlib import Path

from headrace.faults import reached


class Files:
    def create(self, path: Path) -> int:
        """A new, empty file. One of that name was begun and never used."""
        reached("wal creating")
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)

    def write(self, descriptor: int, data: bytes) -> None:
        reached("wal writing")
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]
        reached("wal written")

    def truncate(self, descriptor: int, length: int) -> None:
        os.ftruncate(descriptor, length)

    def sync(self, descriptor: int) -> None:
        reached("wal syncing")
        os.fdatasync(descriptor)
        reached("wal synced")

    def sync_folder(self, folder: Path) -> None:
        """Makes the names in a folder as durable as the files."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def room(self, folder: Path) -> tuple[int, int]:
        """How many bytes are free on the disk of a folder, and how many it has."""
        told = os.statvfs(folder)
        return told.f_bavail * told.f_frsize, told.f_blocks * told.f_frsize

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
