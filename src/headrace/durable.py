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
    draft_of(path).write_bytes(data)
    keep_draft(path)


def draft_of(path: Path) -> Path:
    """Returns where a file is written before it is whole."""
    return path.with_name(f"{path.name}.new")


def keep_draft(path: Path) -> None:
    """Syncs what was written to the draft, and puts it in the place of whatever is there."""
    sync_path(draft_of(path))
    draft_of(path).replace(path)
    sync_path(path.parent)
