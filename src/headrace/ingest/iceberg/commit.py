"""Brings the tables of a job's collections to its LSN."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from functools import partial

from headrace.errors import HeadraceError, Transient, UnexpectedFailure
from headrace.ingest.iceberg.collection_commit import CollectionCommit, Observer
from headrace.ingest.iceberg.jobs import CommitJob, SegmentPart
from headrace.ingest.iceberg.tables import Tables, committed_of
from headrace.wal.batches import Located, index_writes
from headrace.wal.position import LogPosition, SegmentMark
from headrace.wal.records import SegmentHeader
from headrace.wal.segments import CorruptLog, map_segment
from headrace.wal.state import CollectionState, Committed

Outcome = Committed | HeadraceError

_log = logging.getLogger(__name__)


class Committer:
    """Each collection is for itself: what is wrong with one does not hold up the others.

    Tells the observer of its steps: read, then those of each `CollectionCommit`.
    """

    def __init__(
        self,
        tables: Tables,
        observe: Observer = lambda _step: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._tables = tables
        self._observe = observe
        self._pause = pause

    def watermarks(self, collections: Iterable[str], log_id: str = "") -> dict[str, Outcome]:
        return {name: self._guarded(name, partial(self._watermark, name, log_id)) for name in collections}

    def commit(self, job: CommitJob) -> dict[str, Outcome]:
        segments = [_read_segment(segment) for segment in job.segments]
        writes = index_writes(segments)
        self._observe("read")
        mark = job.mark or (_mark_of(segments[-1]) if segments else None)
        target = LogPosition(job.through, job.term, job.boot, mark)
        return {
            collection.name: self._commit_collection(job, collection, writes.get(collection.name, []), target)
            for collection in job.collections
        }

    def _watermark(self, name: str, log_id: str) -> Committed:
        table = self._tables.load(name)
        return Committed(0) if table is None else committed_of(table, log_id)

    def _commit_collection(
        self, job: CommitJob, collection: CollectionState, writes: list[Located], target: LogPosition
    ) -> Outcome:
        after = job.after.get(collection.name)
        commit = CollectionCommit(
            self._tables,
            collection,
            writes,
            after,
            target,
            job.log_id,
            self._observe,
            self._pause,
            job.dropped.get(collection.name, 0),
        )
        return self._guarded(collection.name, commit.run)

    def _guarded(self, name: str, work: Callable[[], Committed]) -> Outcome:
        try:
            return work()
        except HeadraceError as error:
            _log.warning("collection %r: %s", name, error, exc_info=isinstance(error, Transient))
            return error
        except Exception as error:  # noqa: BLE001 - the other collections continue
            _log.exception("collection %r", name)
            return UnexpectedFailure(f"collection {name!r}: {type(error).__name__}: {error}")


def _read_segment(segment: SegmentPart) -> memoryview:
    data = map_segment(segment.path)
    # Otherwise the commit would continue, and the watermark would cover writes that are missing.
    if len(data) < segment.length:
        raise CorruptLog(f"segment {segment.path} has {len(data)} bytes and had {segment.length}: restore it")
    SegmentHeader.decode(data)
    return data[: segment.length]


def _mark_of(segment: memoryview) -> SegmentMark:
    header = SegmentHeader.decode(segment)
    return SegmentMark(header.number, header.nonce, len(segment))
