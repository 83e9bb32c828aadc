"""How much of the log is on the disk, and when there is so much that everybody has to wait."""

from __future__ import annotations

from headrace.ingest.cleaner import Cleaner
from headrace.ingest.commit_loop import CommitLoop
from headrace.ingest.quarantine.lifecycle import Quarantine
from headrace.ingest.segment_index import SegmentIndex
from headrace.ingest.uploader import Uploader


class LogRoom:
    """Thread-safe. `most_bytes` is what may wait to be released."""

    def __init__(
        self,
        index: SegmentIndex,
        uploader: Uploader,
        commits: CommitLoop,
        cleaner: Cleaner,
        quarantine: Quarantine,
        most_bytes: int,
    ) -> None:
        self._index, self._uploader, self._commits, self._cleaner = index, uploader, commits, cleaner
        self._quarantine, self._most_bytes = quarantine, most_bytes

    @property
    def used_bytes(self) -> int:
        """Counts segments, also those that only have to be removed, and side logs."""
        return self._index.bytes + self._cleaner.kept_bytes + self._quarantine.bytes

    def backed_up(self) -> str | None:
        """Returns why everybody has to wait now, if so."""
        if self.used_bytes <= self._most_bytes:
            return None
        # Not all segments wait: those at the front may be kept for the log's state alone.
        aside = self._quarantine.bytes
        waiting = self._index.needed_bytes(self._settled_lsn) + self._cleaner.kept_bytes
        if waiting + aside <= self._most_bytes:
            return None
        if aside > waiting:
            return f"{aside:,} bytes of log are in quarantine: release or drop what is there"
        where = "object storage" if not self._uploader.is_idle else "Iceberg"
        return f"{waiting + aside:,} bytes of log wait for {where}"

    def _settled_lsn(self, collection: str) -> int:
        return max(self._commits.committed(collection), self._quarantine.settled_lsn(collection))
