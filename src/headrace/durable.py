"""What has to outlive the machine's restart."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Of a file all that was written to it, by anybody; of a folder the names that it has."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Puts a whole new file in the place of whatever is there; a crash leaves the one or the other."""
    draft = path.with_name(f"{path.name}.new")
    with draft.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    sync_path(path.parent)
