from __future__ import annotations

import psutil

from headrace.testing.ingest_process import IngestProcess

_COMMITTER = "headrace.ingest.iceberg.committer_process"


def committers_of(server: IngestProcess) -> list[psutil.Process]:
    """The server's processes that commit: one, or none while it starts."""
    try:
        children = psutil.Process(server.pid).children()
        return [child for child in children if _COMMITTER in child.cmdline()]
    except psutil.Error:
        return []
