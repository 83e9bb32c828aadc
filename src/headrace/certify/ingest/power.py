"""What is left of a server's log when its machine loses its power."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from headrace.faults import Faults
from headrace.wal.segments import segment_files

RECORDER = "headrace.certify.ingest.synced_lengths"
"""To be loaded into the server."""


def lose_power(log: Path, faults: Faults) -> int:
    """Cuts every file back to what was synced, after the process was killed; says how much that took."""
    taken = 0
    for path in segment_files(log):
        noted = faults.folder / "synced" / quote(str(path), safe="")
        synced = int(noted.read_text()) if noted.exists() else 0
        before = path.stat().st_size
        if before > synced:
            os.truncate(path, synced)
            taken += before - synced
    return taken
