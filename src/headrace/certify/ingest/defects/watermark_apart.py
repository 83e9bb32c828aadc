"""The watermark is set after the commit, and not in it."""

from __future__ import annotations

import sys
from typing import Any

if "pyiceberg" in sys.modules:  # in the process that commits
    from pyiceberg.manifest import DataFile

    from headrace.ingest.iceberg.append import Try
    from headrace.ingest.iceberg.commit import Committer, Outcome
    from headrace.ingest.iceberg.jobs import CommitJob
    from headrace.ingest.iceberg.tables import COMMITTED_LSN
    from headrace.wal.state import Committed

    _append_files, _commit = Try.append_files, Committer.commit

    def _without(
        self: Try, files: list[DataFile], summary: dict[str, str], properties: dict[str, str]
    ) -> None:
        kept = {name: value for name, value in properties.items() if name != COMMITTED_LSN}
        _append_files(self, files, summary, kept)

    def _then_set(self: Committer, job: CommitJob) -> dict[str, Outcome]:
        outcomes = _commit(self, job)
        for name, outcome in outcomes.items():
            table = self._tables.load(name)
            if table is not None and isinstance(outcome, Committed):
                with table.transaction() as transaction:
                    transaction.set_properties({COMMITTED_LSN: str(job.through)})
        return outcomes

    _patched: Any = Try
    _patched.append_files = _without
    _patched = Committer
    _patched.commit = _then_set
