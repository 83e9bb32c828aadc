"""Loaded into a server that makes a fixture: the clock of its log shows the year 2100.

The log forgets producers that have been silent for a week, and those of a fixture must be remembered for
longer. Only the log's clock is changed: a table refuses commits that are older than its last one.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from headrace.faults import VARIABLE, Faults
from headrace.ingest.log import seeded

THEN = datetime(2100, 1, 1, tzinfo=UTC)
_AHEAD = "log-clock-ahead"


def set_ahead(faults: Faults) -> None:
    """Sets the clock of the servers that get these faults."""
    (faults.folder / _AHEAD).write_text(str(int(THEN.timestamp() - time.time())))
    faults.load(__name__)


if VARIABLE in os.environ:
    seeded.clock = Path(os.environ[VARIABLE]) / _AHEAD
