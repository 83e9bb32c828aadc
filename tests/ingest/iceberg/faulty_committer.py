"""The committer's process with a fault: `python -m tests.ingest.iceberg.faulty_committer kill committing`."""

from __future__ import annotations

import os
import sys
import warnings

from headrace.ingest.iceberg.committer_process import main
from headrace.testing.faults import kill_at, stop_at


def chatter(_step: str) -> None:
    os.write(1, b"a library prints on stdout")
    warnings.warn("and warns", stacklevel=1)


if __name__ == "__main__":
    fault, step = sys.argv[1:3]
    main({"kill": kill_at, "stop": stop_at}[fault](step) if fault != "chatter" else chatter)
