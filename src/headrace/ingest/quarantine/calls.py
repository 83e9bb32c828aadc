"""What a person does about a collection in quarantine: release it, or give its writes up."""

from __future__ import annotations

import time
from collections.abc import Callable

from headrace.errors import WriteTimeout
from headrace.ingest.commit_loop import CommitLoop
from headrace.ingest.log import Log
from headrace.ingest.low_water import LowWaterMark, TableMark
from headrace.ingest.progress import Progress
from headrace.ingest.quarantine.lifecycle import Listed, Quarantine
from headrace.model.tiers import Tier
from headrace.wal.state import Range

_ASK_SECONDS = 10.0


class QuarantineCalls:
    """`break_off(collection)` ends the streams of a collection, and `upload(timeout)` returns when all that
    was accepted is in object storage."""

    def __init__(
        self,
        quarantine: Quarantine,
        mark: LowWaterMark,
        commits: CommitLoop,
        progress: Progress,
        log: Log,
        break_off: Callable[[str], None],
        upload: Callable[[float], None],
    ) -> None:
        self._quarantine, self._mark, self._commits = quarantine, mark, commits
        self._progress, self._log, self._break_off = progress, log, break_off
        self._upload = upload

    def listed(self) -> list[Listed]:
        return self._quarantine.listed()

    def release(self, collection: str, timeout: float) -> None:
        """Returns when the collection is out of quarantine, with all of its writes committed."""
        deadline = time.monotonic() + timeout
        if collection in self._quarantine:
            self._upload(timeout)  # only what is there is committed
        release = self._quarantine.ask_release(collection)
        self._commits.commit_now()
        if not release.done.wait(max(deadline - time.monotonic(), 0)):
            raise WriteTimeout(
                f"collection {collection!r} was not released in {timeout:.0f} s: it goes on, and headrace "
                "quarantine list shows it until it is done"
            )
        if release.error is not None:
            raise release.error

    def drop(self, collection: str) -> Range:
        """Gives up the writes of the collection that are not in its table; returns the range that is lost.

        The table is asked, since a commit of which nobody heard may have been done; one that does not answer
        is where it was last seen.
        """
        in_table = max(
            self._commits.ask(collection, _ASK_SECONDS) if collection in self._quarantine else 0,
            self._commits.committed(collection),
            self._mark.current.tables.get(collection, TableMark()).position.lsn,
            self._progress.of(Tier.COMMITTED, collection).lsn,
        )
        lost = (in_table + 1, max(self._log.last_lsn, in_table))
        # They are all remembered, since they are not committed; and no others come, in quarantine.
        known = self._log.known(collection, [lost])
        self._quarantine.drop(collection, *lost, known, lambda: self._break_off(collection))
        return lost
