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
