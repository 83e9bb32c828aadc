"""How far the writes of a server have come, by tier and by collection, side logs included."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.ingest.collections import Collections
from headrace.ingest.log import Log
from headrace.ingest.progress import Progress, now_us
from headrace.ingest.quarantine.lifecycle import Quarantine
from headrace.ingest.segment_index import SegmentIndex, is_committed
from headrace.model.tiers import Tier
from headrace.wal.segments import Segment


class Reach:
    """Thread-safe."""

    def __init__(
        self,
        log: Log,
        index: SegmentIndex,
        collections: Collections,
        progress: Progress,
        quarantine: Quarantine,
    ) -> None:
        self._log, self._index, self._collections = log, index, collections
        self._progress, self._quarantine = progress, quarantine

    def watermarks(self, collection: str | None, may_see: Callable[[str], bool]) -> dict[str, int]:
        """Returns those of one collection, or of all that a caller may see."""
        shared = {
            Tier.MEMORY.name: self._log.last_lsn,
            Tier.LOCAL_DISK.name: self._progress.of(Tier.LOCAL_DISK, "").lsn,
            Tier.OBJECT_STORAGE.name: self._progress.of(Tier.OBJECT_STORAGE, "").lsn,
        }
        names = filter(may_see, self._collections.names()) if collection is None else [collection]
        committed = min((self._committed_lsn(name) for name in names), default=0)
        return shared | {Tier.COMMITTED.name: committed}

    def lag_seconds(self, tier: Tier) -> float:
        """For how long the oldest write that is not at the tier has waited."""
        if tier is Tier.LOCAL_DISK:
            since = self._log.unsynced_since_us
        else:
            oldest = self._oldest(tier)
            since = oldest.first_accepted_us if oldest else self._log.unsealed_since_us
        return 0.0 if since is None else max(now_us() - since, 0) / 1e6

    def is_through(self, tier: Tier, lsn: int) -> bool:
        if tier is not Tier.COMMITTED:
            return self._progress.of(tier, "").lsn >= lsn
        oldest = self._oldest(tier)
        return oldest is None or oldest.header.first_lsn > lsn

    def is_committed(self, segment: Segment) -> bool:
        return is_committed(segment, self._done_lsn)

    def _done_lsn(self, collection: str) -> int:
        committed = self._progress.of(Tier.COMMITTED, collection).lsn
        return max(committed, self._quarantine.dropped_lsn(collection))

    def _oldest(self, tier: Tier) -> Segment | None:
        """Returns the first segment that is not at the tier; those of side logs are in object storage."""
        if tier is Tier.OBJECT_STORAGE:
            return self._index.oldest(self._index.is_uploaded)
        # The log first: what is copied out of it in between is in the side log.
        oldest = self._index.oldest(self.is_committed)
        waiting = [oldest] if oldest else []
        waiting += [one for one in self._side_segments() if not self.is_committed(one)]
        return min(waiting, key=lambda one: one.header.first_lsn, default=None)

    def _side_segments(self) -> Iterator[Segment]:
        for name in self._quarantine.names():
            yield from self._quarantine.segments(name)

    def _committed_lsn(self, collection: str) -> int:
        """The table's watermark, or more where nothing of the collection waits."""
        # Looked at first: a segment that is sealed and uploaded in between must be among those below.
        uploaded = self._progress.of(Tier.OBJECT_STORAGE, collection).lsn
        committed = self._done_lsn(collection)
        # The log first: what is copied out of it in between is in the side log.
        waiting = [one for one in self._index.all() if one.last_lsns.get(collection, 0) > committed]
        waiting += [one for one in self._quarantine.segments(collection) if one.last_lsn > committed]
        oldest = min((one.header.first_lsn for one in waiting), default=uploaded + 1)
        return max(committed, min(oldest - 1, uploaded))
