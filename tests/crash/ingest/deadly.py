"""The process that commits dies of one collection, as of data that takes all of its memory."""

from __future__ import annotations

import os
import signal
from typing import Any

from headrace.faults import VARIABLE
from headrace.ingest.iceberg import commit

COLLECTION = "bad"
CURE = "deadly.cured"
"""A file in the folder of the faults; with it nothing dies any more."""

_committer: Any = commit.Committer
_commit_collection = _committer._commit_collection


def _die(self: Any, job: Any, collection: Any, writes: Any, target: Any) -> Any:
    cure = os.path.join(os.environ[VARIABLE], CURE)
    if collection.name == COLLECTION and writes and not os.path.exists(cure):
        os.kill(os.getpid(), signal.SIGKILL)
    return _commit_collection(self, job, collection, writes, target)


if VARIABLE in os.environ:  # a test's own process only reads the names above
    _committer._commit_collection = _die
