"""Disks that can be filled up, as far as the user who runs the tests can make one."""

from __future__ import annotations

import os
import resource
import subprocess
from pathlib import Path
from typing import Protocol

from tests.ingest_process.serving import Serving

SIZE = "24m"
_BLOCK = b"\0" * 65536


class Disk(Protocol):
    folder: Path

    def fill(self, server: Serving) -> None:
        """From now on the server cannot write there."""

    def free(self, server: Serving) -> None: ...

    def close(self) -> None: ...


class SmallDisk:
    """A file system of its own, which a file of ours fills up. Takes root."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], check=True)

    def fill(self, server: Serving) -> None:
        with (self.folder / "filler").open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(_BLOCK)
            except OSError:
                return

    def free(self, server: Serving) -> None:
        (self.folder / "filler").unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)


class LimitedFiles:
    """A server whose files may not grow, as with a quota."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def fill(self, server: Serving) -> None:
        server.seen.rlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))

    def free(self, server: Serving) -> None:
        server.seen.rlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def close(self) -> None:
        pass


class ClosedFolder:
    """A folder that takes no new files; of no use to root, whom nothing stops."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def fill(self, server: Serving) -> None:
        self._each(0o555)

    def free(self, server: Serving) -> None:
        self._each(0o755)

    def close(self) -> None:
        self._each(0o755)

    def _each(self, mode: int) -> None:
        for folder in (self.folder, *(path for path in self.folder.rglob("*") if path.is_dir())):
            folder.chmod(mode)


IS_ROOT = os.geteuid() == 0
FOR_THE_LOG: list[type[SmallDisk | LimitedFiles]] = [LimitedFiles, *([SmallDisk] if IS_ROOT else [])]
FOR_THE_STORE: type[SmallDisk | ClosedFolder] = SmallDisk if IS_ROOT else ClosedFolder
