"""Has the committer's process bring the tables up to what is in object storage, again and again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Condition, Thread

from headrace.errors import Fenced, HeadraceError, UnexpectedFailure
from headrace.faults import reached
from headrace.ingest.collections import Collections
from headrace.ingest.iceberg.committer import CommitterProcess
from headrace.ingest.iceberg.errors import TableMoved
from headrace.ingest.iceberg.jobs import CommitJob, SegmentPart
from headrace.ingest.progress import Progress
from headrace.ingest.segment_index import SegmentIndex
from headrace.model.tiers import Tier
from headrace.wal.position import LogPosition
from headrace.wal.segments import Segment
from headrace.wal.state import Committed

log = logging.getLogger(__name__)

# What one commit reads at most; after an outage the backlog is committed in several.
MOST_BYTES = 1 << 30
_LONGEST_RETRY_SECONDS = 30.0
_EVERYTHING = 2**64


@dataclass(frozen=True)
class ServerRun:
    """One run of a server: of which log, in which term, and an id of its own."""

    log_id: str
    term: int
    boot: str


def longest_silence(interval: float, timeout: float) -> float:
    """Between two beats there is one request to the committer's process, with a minute to begin or end that
    process, or the pause until the next round."""
    return max(interval, timeout, _LONGEST_RETRY_SECONDS) + 60.0


class CommitLoop:
    """One thread. `on_committed(collection, committed)` and `on_round()` are called on it.

    `check(collection, found)` is called for each table that answers, before anything else is made of the
    answer. `on_fatal(error)` is called when that shows that somebody else commits; then nothing more is.
    """

    def __init__(
        self,
        process: CommitterProcess,
        index: SegmentIndex,
        collections: Collections,
        progress: Progress,
        run: ServerRun,
        *,
        interval: float,
        timeout: float,
        check: Callable[[str, LogPosition], None],
        on_committed: Callable[[str, Committed], None],
        on_round: Callable[[], None],
        on_fatal: Callable[[Fenced], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._process, self._index, self._collections, self._progress = process, index, collections, progress
        self._server, self._interval, self._timeout = run, interval, timeout
        self._check = check
        self._on_committed, self._on_round, self._on_fatal = on_committed, on_round, on_fatal
        self._beat = beat
        self._changed = Condition()
        self._wanted = self._closing = False
        self._tables: dict[str, Committed] = {}  # where each is that has answered
        self._has_asked = False
        self.commits = 0
        self.failures = 0
        self.failing: dict[str, str] = {}
        """Why a collection is not committed, or all of them (under the empty name)."""
        self._thread = Thread(target=self._run, name="commits", daemon=True)

    def start(self) -> None:
        self._beat()
        self._thread.start()

    def commit_now(self) -> None:
        with self._changed:
            self._wanted = True
            self._changed.notify_all()

    def close(self, timeout: float) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                # A catalog may not answer for minutes. Whether it committed is asked at the next start.
                self._process.kill()
                self._thread.join(timeout)
        self._process.close()

    @property
    def knows_tables(self) -> bool:
        """Whether the tables have ever said how far they are."""
        return self._has_asked

    def committed(self, collection: str) -> int:
        """Returns how far the table of a collection is, as it has said to this process; 0 before that."""
        table = self._tables.get(collection)
        return 0 if table is None else table.lsn

    @property
    def tables(self) -> Mapping[str, Committed]:
        """Those that have answered."""
        return dict(self._tables)

    def _run(self) -> None:
        pause = 0.0
        while not self._wait(pause):
            began = time.monotonic()
            try:
                self._round()
                self.failing.pop("", None)
                pause = max(self._interval - (time.monotonic() - began), 0.0)
            except Fenced as error:
                self._failed("", error)
                self._on_fatal(error)
                return
            except Exception as error:  # noqa: BLE001 - whatever it is, it may be over in a while
                if self._closing:
                    log.info("a commit was broken off; whether it was done is asked at the next start")
                    return
                self._failed("", _ours(error))
                pause = min(max(self._interval, 2 * pause), _LONGEST_RETRY_SECONDS)

    def _wait(self, seconds: float) -> bool:
        """Whether the loop is closed."""
        self._beat()
        with self._changed:
            self._changed.wait_for(lambda: self._closing or self._wanted, seconds)
            self._wanted = False
        self._beat()
        return self._closing

    def _round(self) -> None:
        self._ask_tables()
        stuck: set[str] = set()

        def committed(collection: str) -> int:
            # One that is stuck is left alone for this round, or what waits of it would fill every job.
            is_waiting = collection in stuck or collection not in self._tables
            return _EVERYTHING if is_waiting else self.committed(collection)

        while not self._closing and (segments := self._index.to_commit(committed, MOST_BYTES)):
            stuck |= self._commit(segments, committed)
        self._on_round()

    def _unknown(self) -> set[str]:
        return set(self._collections.names()) - self._tables.keys()

    def _ask_tables(self) -> None:
        """A crash may have come between a commit and the news of it, and anything else before the start."""
        unknown = self._unknown()
        if unknown or not self._has_asked:  # even if there is none: the process starts before it is needed
            answer = self._process.watermarks(sorted(unknown), self._timeout, self._server.log_id)
            reached("tables asked")
            for name, at in answer.items():
                self._note(name, at)
        self._has_asked = True

    def _commit(self, segments: list[Segment], committed: Callable[[str], int]) -> set[str]:
        """The collections whose tables did not move."""
        names = {
            name for segment in segments for name, lsn in segment.last_lsns.items() if lsn > committed(name)
        }
        job = CommitJob(
            segments=tuple(SegmentPart(segment.path, segment.length) for segment in segments),
            through=segments[-1].last_lsn,
            collections=tuple(self._collections.get(name) for name in sorted(names)),
            log_id=self._server.log_id,
            term=self._server.term,
            boot=self._server.boot,
            after={name: self._tables[name].position for name in names},
        )
        self._beat()
        reached("commits asking")
        outcome = self._process.commit(job, self._timeout)
        reached("commits answered")
        moved = {name for name, at in outcome.items() if self._note(name, at)}
        self.commits += len(moved)
        return names - moved

    def _note(self, collection: str, at: Committed | HeadraceError) -> bool:
        """Returns whether the table has moved on."""
        try:
            if isinstance(at, HeadraceError):
                raise at
            self._check(collection, at.position)
        except Fenced:
            raise
        except TableMoved as error:
            log.warning("%s: it is asked again", error.message)
            self._tables.pop(collection, None)
            return False
        except HeadraceError as error:
            self._failed(collection, error)
            return False
        self.failing.pop(collection, None)
        before = self.committed(collection)
        self._tables[collection] = at
        announced = self._progress.of(Tier.COMMITTED, collection).lsn
        if at.lsn > announced:
            self._on_committed(collection, at)
            self._progress.advance_committed(collection, at.lsn, at.snapshot_id)
        return at.lsn > before

    def _failed(self, collection: str, error: HeadraceError) -> None:
        self.failures += 1
        if self.failing.get(collection) != error.message:
            log.error("commit of %s: %s", collection or "all collections", error.message)
        self.failing[collection] = error.message


def _ours(error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    return UnexpectedFailure(f"committing failed: {type(error).__name__}: {error}")
