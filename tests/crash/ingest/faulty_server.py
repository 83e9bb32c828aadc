"""`headrace`, but it dies at a step: the file named by FAULT says at which, and at which occurrence of it.

Without the file it does not, so that the same command can be started again. A step is what was just done.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.cli import main
from headrace.ingest.data_folder import DataFolder
from headrace.ingest.iceberg.committer import CommitterProcess
from headrace.ingest.store import SegmentStore
from headrace.objects import ObjectStore
from headrace.testing.faults import kill_at
from headrace.wal.files import Files

FAULT = "HEADRACE_TEST_FAULT"

STEPS: dict[str, tuple[type, str]] = {
    "wrote": (Files, "write"),
    "synced": (Files, "sync"),
    "created a file": (Files, "create"),
    "put an object": (ObjectStore, "_put"),
    "looked for the owner": (SegmentStore, "check_owner"),
    "committed": (CommitterProcess, "commit"),
    "asked the tables": (CommitterProcess, "watermarks"),
    "removed a file": (Path, "unlink"),
    "removed an object": (SegmentStore, "remove"),
    "claimed an epoch": (SegmentStore, "claim_epoch"),
    "fetched a segment": (SegmentStore, "fetch"),
    "wrote its identity": (DataFolder, "_write"),
}


def watch(step: str, observe: Callable[[str], None]) -> None:
    kind, name = STEPS[step]
    function = getattr(kind, name)

    def watched(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        observe(step)
        return result

    setattr(kind, name, watched)


if __name__ == "__main__":
    fault = Path(os.environ[FAULT])
    if fault.exists():
        step, _, occurrence = fault.read_text().rpartition(" ")
        watch(step, kill_at(step, int(occurrence)))
    main()
