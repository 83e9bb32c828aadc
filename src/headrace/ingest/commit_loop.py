"""Has the committer's process bring the tables up to what is in object storage, again and again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from threading import Condition, Thread

from headrace.errors import Fenced, HeadraceError, Transient, UnexpectedFailure
from headrace.faults import reached
from headrace.ingest.collections import Collections
from headrace.ingest.iceberg.committer import CommitterProcess
from headrace.ingest.iceberg.errors import CommitterDied, TableMoved
from headrace.ingest.iceberg.jobs import CommitJob, SegmentPart
from headrace.ingest.progress import Progress
from headrace.ingest.quarantine.lifecycle import Quarantine, Release
from headrace.ingest.quarantine.stuck import Stuck
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


@dataclass(frozen=True)
class Confirmed:
    """Says by which tables segments may be removed."""

    tables: Mapping[str, Committed]
    """Those that have answered."""
    through: int
    """The last segment for whose removal they were asked once more."""


def longest_silence(interval: float, timeout: float) -> float:
    """Between two beats there is one request to the committer's process, with a minute to begin or end that
    process, or the pause until the next round."""
    return max(interval, timeout, _LONGEST_RETRY_SECONDS) + 60.0


class CommitLoop:
    """One thread. `on_round()` is called on it.

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
        quarantine: Quarantine,
        stuck: Stuck,
        *,
        interval: float,
        timeout: float,
        most_log_bytes: int,
        check: Callable[[str, LogPosition], None],
        on_round: Callable[[], None],
        on_fatal: Callable[[Fenced], None],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._process, self._index, self._collections, self._progress = process, index, collections, progress
        self._server, self._interval, self._timeout = run, interval, timeout
        self._quarantine, self._stuck, self._most_log_bytes = quarantine, stuck, most_log_bytes
        self._check = check
        self._on_round, self._on_fatal = on_round, on_fatal
        self._beat = beat
        self._changed = Condition()
        self._wanted = self._closing = False
        self._tables: dict[str, Committed] = {}  # where each is that has answered
        self._confirmed = Confirmed({}, 0)
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
        """Returns up to where nothing of a collection is to be committed: what its table has, as it has said
        to this process, or what was given up."""
        table = self._tables.get(collection)
        return max(0 if table is None else table.lsn, self._quarantine.dropped_lsn(collection))

    def ask(self, collection: str, timeout: float) -> int:
        """Returns how far the table says it is just now; 0 if it does not answer."""
        try:
            found = self._process.watermarks([collection], timeout, self._server.log_id)[collection]
        except HeadraceError:
            return 0
        return found.lsn if isinstance(found, Committed) else 0

    @property
    def confirmed(self) -> Confirmed:
        return self._confirmed

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
            is_asked = collection in self._tables and collection not in stuck
            is_waiting = not is_asked or self._quarantine.holds(collection)
            return _EVERYTHING if is_waiting else self.committed(collection)

        # What is uploaded meanwhile is for the next round: under load this one would never end.
        through = self._index.uploaded_through
        while not self._closing and (segments := self._index.to_commit(committed, through, MOST_BYTES)):
            names = {name for one in segments for name, lsn in one.last_lsns.items() if lsn > committed(name)}
            suspects = names & self._stuck.suspects
            for group in ({name} for name in sorted(suspects)):
                stuck |= self._commit(self._of(segments, group)[:1], group)
            if names - suspects:
                stuck |= self._commit(self._of(segments, names - suspects), names - suspects)
        for release in self._quarantine.releases():
            self._release(release)
        self._judge()
        self._confirm()
        self._on_round()

    def _unknown(self) -> set[str]:
        return set(self._collections.names()) - self._tables.keys()

    def _ask_tables(self) -> None:
        """A crash may have come between a commit and the news of it, and anything else before the start."""
        unknown = self._unknown()
        if unknown or not self._has_asked:  # even if there is none: the process starts before it is needed
            answer = self._ask_watermarks(unknown)
            reached("tables asked")
            for name, at in answer.items():
                self._note(name, at)
                if name in self._tables:
                    self._stuck.forget(name)
        self._has_asked = True

    def _ask_watermarks(self, names: Iterable[str]) -> dict[str, Committed | HeadraceError]:
        self._beat()
        return self._process.watermarks(sorted(names), self._timeout, self._server.log_id)

    def _of(self, segments: Iterable[Segment], names: Iterable[str]) -> list[Segment]:
        """Returns the segments with writes of these collections that are to be committed."""
        return [
            segment
            for segment in segments
            if any(segment.last_lsns.get(name, 0) > self.committed(name) for name in names)
        ]

    def _ask_commit(self, segments: list[Segment], names: set[str]) -> dict[str, Committed | HeadraceError]:
        dropped = {name: self._quarantine.dropped_lsn(name) for name in names}
        job = CommitJob(
            segments=tuple(SegmentPart(segment.path, segment.length) for segment in segments),
            through=segments[-1].last_lsn,
            collections=tuple(self._collections.get(name) for name in sorted(names)),
            log_id=self._server.log_id,
            term=self._server.term,
            boot=self._server.boot,
            after={name: self._tables[name].position for name in names},
            dropped={name: lsn for name, lsn in dropped.items() if lsn},
            mark=segments[-1].mark,
        )
        self._beat()
        reached("commits asking")
        outcome = self._process.commit(job, self._timeout)
        reached("commits answered")
        return outcome

    def _commit(self, segments: list[Segment], names: set[str]) -> set[str]:
        """Returns the collections whose tables did not move, so that they are left alone for this round."""
        try:
            outcome = self._ask_commit(segments, names)
        except CommitterDied as died:
            return self._bisect(segments, names, died)
        moved = {name for name, at in outcome.items() if self._note(name, at)}
        self.commits += len(moved)
        if moved:
            self._stuck.survived()
        return names - moved

    def _bisect(self, segments: list[Segment], names: set[str], died: CommitterDied) -> set[str]:
        """Finds with which collection the process dies, by halves. If the tables do not answer either, it is
        not for any of them that it died."""
        if self._closing:
            raise died
        for name, at in self._ask_watermarks(names).items():
            self._note(name, at)  # the commit may have been done before it died
        left = sorted(name for name in names if name in self._tables and self._of(segments, [name]))
        half = len(left) // 2
        if half:
            log.warning("the process that commits ended (%s): it gets %d collections at a time", died, half)
            return {
                name
                for group in (set(left[:half]), set(left[half:]))
                for name in self._commit(self._of(segments, group), group)
            }
        if not left:
            return names - self._tables.keys()
        own = self._of(segments, left)
        if len(own) > 1:
            return self._commit(own[: len(own) // 2], set(left))
        self._stuck.died(left[0], died)
        self._note_failure(left[0], died)
        return set(left)

    def _release(self, release: Release) -> None:
        """Commits a part of what a collection in quarantine has in its side log, and after that in the log.
        The rest waits for the next round, so that others have theirs in between."""
        name = release.collection
        try:
            for answered, at in self._ask_watermarks([name]).items():
                self._see(answered, at)
            if segments := self._waiting_of(name):
                self._see(name, self._ask_commit(segments, {name})[name])
                self.commits += 1
            if self._waiting_of(name):
                self.commit_now()
                return
        except Fenced:
            raise
        except HeadraceError as error:
            self._quarantine.end(release, None, error)
        else:
            if not self._closing:
                self._stuck.forget(name)
                # The mark is to say where the table is now, not where it was when it was asked before.
                others = {other: table for other, table in self._confirmed.tables.items() if other != name}
                self._confirmed = replace(self._confirmed, tables=others)
                self._quarantine.end(release, self._tables[name].position)

    def _waiting_of(self, name: str) -> list[Segment]:
        """Returns so much of a collection in quarantine as one commit takes."""
        settled = self._quarantine.settled_lsn(name)
        rest = [one for one in self._index.all() if one.last_lsns.get(name, 0) > settled]
        candidates = self._quarantine.segments(name) + [one for one in rest if self._index.is_uploaded(one)]
        taken: list[Segment] = []
        for segment in self._of(candidates, [name]):
            if taken and sum(one.length for one in taken) + segment.length > MOST_BYTES:
                break
            taken.append(segment)
        return taken

    def _judge(self) -> None:
        for name in self._stuck.names():
            share = self._index.needed_bytes(partial(self._done_but_for, name)) / self._most_log_bytes
            reason = self._stuck.verdict(name, share)
            if reason is None or self._closing:
                continue
            try:
                if self._stuck.needs_answer(name, share):
                    answer = self._ask_watermarks([name])[name]
                    if isinstance(answer, HeadraceError):
                        continue
                self._quarantine.enter(name, reason)
            except Transient as error:
                log.warning("collection %r is to be quarantined: %s", name, error.message)
                continue
            self._stuck.forget(name)
            self.failing.pop(name, None)

    def _done_but_for(self, name: str, collection: str) -> int:
        if collection != name:
            return _EVERYTHING
        return max(self.committed(name), self._quarantine.settled_lsn(name))

    def _confirm(self) -> None:
        """Asks the tables once more by which segments are to be removed: one that was restored to an older
        copy since it was committed still finds its writes in the log."""

        def done(collection: str) -> int:
            return max(self.committed(collection), self._quarantine.settled_lsn(collection))

        removable = self._index.removable(done)
        names = {name for segment in removable for name in segment.last_lsns}
        known, changed = dict(self._tables), set()
        if asked := names & known.keys():
            for name, at in self._ask_watermarks(asked).items():
                if isinstance(at, HeadraceError) or at.position != known[name].position:
                    changed.add(name)
                    self._note(name, at)
        tables = {name: table for name, table in known.items() if name not in changed}
        self._confirmed = Confirmed(tables, removable[-1].header.number if removable else 0)

    def _note(self, collection: str, at: Committed | HeadraceError) -> bool:
        """Returns whether the table has moved on."""
        before = self.committed(collection)
        try:
            self._see(collection, at)
        except Fenced:
            raise
        except TableMoved as error:
            log.warning("%s: it is asked again", error.message)
            self._tables.pop(collection, None)
            return False
        except HeadraceError as error:
            self._note_failure(collection, error)
            return False
        self.failing.pop(collection, None)
        if self.committed(collection) <= before:
            return False
        self._stuck.moved(collection)
        return True

    def _see(self, collection: str, at: Committed | HeadraceError) -> None:
        """Takes note of how far a table is; raises what is wrong with it."""
        if isinstance(at, HeadraceError):
            raise at
        self._check(collection, at.position)
        self._tables[collection] = at
        announced = self._progress.of(Tier.COMMITTED, collection).lsn
        if at.lsn > announced:
            self._progress.advance_committed(collection, at.lsn, at.snapshot_id)

    def _note_failure(self, collection: str, error: HeadraceError) -> None:
        """What is wrong with one in quarantine is known; it is asked again when it is released."""
        if collection not in self._quarantine:
            if not isinstance(error, CommitterDied):
                self._stuck.failed(collection, error)
            self._failed(collection, error)

    def _failed(self, collection: str, error: HeadraceError) -> None:
        self.failures += 1
        if self.failing.get(collection) != error.message:
            log.error("commit of %s: %s", collection or "all collections", error.message)
        self.failing[collection] = error.message


def _ours(error: Exception) -> HeadraceError:
    if isinstance(error, HeadraceError):
        return error
    return UnexpectedFailure(f"committing failed: {type(error).__name__}: {error}")
