"""The server without its port: the log, the uploader, the committer, and what sessions share."""

from __future__ import annotations

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from headrace.errors import HeadraceError, ServerUnavailable, StorageFull, Terminal, WriteTimeout
from headrace.ingest import cleaner, commit_loop, disk_space, intake, uploader
from headrace.ingest.cleaner import Cleaner
from headrace.ingest.collections import Collections
from headrace.ingest.commit_loop import CommitLoop, ServerRun
from headrace.ingest.data_folder import DataFolder
from headrace.ingest.disk_space import DiskSpace, shares_disk
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.heartbeats import Heartbeats
from headrace.ingest.iceberg.committer import CommitterProcess
from headrace.ingest.iceberg.settings import embedded_catalog, kept_on_host
from headrace.ingest.intake import Intake
from headrace.ingest.low_water import LowWaterMark
from headrace.ingest.options import Options
from headrace.ingest.producers import Producer, Producers, Run, collect_into
from headrace.ingest.progress import Progress, now_us, tier_of
from headrace.ingest.segment_index import SegmentIndex, is_committed
from headrace.ingest.session import Services, Session
from headrace.ingest.statistics import Statistics
from headrace.ingest.store import SegmentStore
from headrace.ingest.table_history import TableCheck
from headrace.ingest.uploader import Uploader
from headrace.model.tiers import Tier
from headrace.wal import writer as log_writer
from headrace.wal.files import Files
from headrace.wal.segments import Segment
from headrace.wal.state import Committed, Range
from headrace.wal.writer import LogWriter

log = logging.getLogger(__name__)


class Engine:
    """Started once; every method is thread-safe. `files` and `store` are for tests that make them fail, and
    `clock` is by which tasks that hang are told."""

    def __init__(
        self,
        settings: EngineSettings,
        files: Files | None = None,
        store: SegmentStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._heartbeats = Heartbeats(clock)
        self.catalog = settings.catalog or embedded_catalog(settings.data)
        self._folder = DataFolder(settings.data, settings.accept_loss)
        committer = CommitterProcess(self.catalog)
        try:
            url = settings.store_url or (settings.data.absolute() / "objects").as_uri()
            self._store = store or SegmentStore(url, settings.store_options)
            runs: dict[tuple[str, str], list[Run]] = defaultdict(list)
            opened = self._folder.open_log(
                self._store,
                collect_into(runs),
                partial(committer.positions, timeout=settings.commit_timeout),
            )
        except BaseException:
            committer.close()
            self._folder.close()
            raise
        self._identity, recovered = opened.identity, opened.recovered
        state = recovered.state
        segments = recovered.segments
        self._lost = state.lost
        self._index = SegmentIndex(segments)
        self._mark = LowWaterMark(opened.low_water, settings.data, self._store, self._identity.term)
        self._progress = Progress(
            state.last_lsn, segments[0].header.first_lsn - 1 if segments else 0, state.committed
        )
        self._state = state
        self._producers = Producers(state)
        for name, found in runs.items():
            if name in state.producers:  # the state may have forgotten one of whom a segment is still there
                self._producers.recovered(*name, found)
        self._uploader = Uploader(
            self._store,
            self._identity.term,
            prove=None if opened.is_proven else partial(self._prove, recovered.next_number - 1),
            on_uploaded=self._uploaded,
            on_fatal=self._stop_accepting,
            beat=self._heartbeats.expect("uploader", uploader.LONGEST_SILENCE_SECONDS),
        )
        self._log = LogWriter(
            self._folder.log,
            self._identity.term,
            recovered.next_number,
            state,
            segments[-1] if segments else None,
            on_durable=lambda lsn: self._progress.advance(Tier.LOCAL_DISK, lsn),
            on_sealed=self._sealed,
            may_seal=lambda: self._uploader.is_idle,
            beat=self._heartbeats.expect("log", log_writer.LONGEST_SILENCE_SECONDS),
            limits=settings.log,
            files=files,
        )
        self._intake = Intake(
            self._log,
            on_fatal=self._stop_accepting,
            beat=self._heartbeats.expect("intake", intake.LONGEST_SILENCE_SECONDS),
        )
        self._collections = Collections(state.collections, self._log.declare)
        self._commits = CommitLoop(
            committer,
            self._index,
            self._collections,
            self._progress,
            ServerRun(self._identity.log_id, self._identity.term, secrets.token_hex(8)),
            interval=settings.commit_interval,
            timeout=settings.commit_timeout,
            check=TableCheck(
                self._identity.term, state.last_lsn, self._index, self._mark, settings.accept_loss
            ),
            on_committed=self._committed,
            on_round=self._clean_up,
            on_fatal=self._stop_accepting,
            beat=self._heartbeats.expect(
                "commits", commit_loop.longest_silence(settings.commit_interval, settings.commit_timeout)
            ),
        )
        self._cleaner = Cleaner(
            self._index,
            self._store,
            self._mark,
            lambda: self._commits.tables,
            on_fatal=self._stop_accepting,
            beat=self._heartbeats.expect("cleaner", cleaner.LONGEST_SILENCE_SECONDS),
        )
        self._commits_here = shares_disk(self._folder.log, self.catalog.properties.get("warehouse", ""))
        self._disk = DiskSpace(
            self._folder.log,
            settings.free_bytes,
            self._owed_bytes,
            files or Files(),
            beat=self._heartbeats.expect("disk", disk_space.LONGEST_SILENCE_SECONDS),
        )
        self._fatal: Terminal | None = None
        self._closing = False
        self._sessions: dict[int, Session] = {}
        self._ended = Statistics()
        self._sessions_lock = Lock()
        self._services = Services(
            log=self._log,
            intake=self._intake,
            progress=self._progress,
            producers=self._producers,
            collections=self._collections,
            limits=settings.session,
            refusal=self.refusal,
            is_backed_up=self._backed_up,
            describe_session=self._describe_session,
        )

    def start(self) -> None:
        # Before the log starts, which adds more of them: they are uploaded in order.
        for segment in self._index.all():
            self._uploader.add(segment, may_be_there=True)
        self._disk.start()
        self._log.start()
        self._intake.start()
        self._uploader.start()
        self._cleaner.start()
        self._commits.start()

    def close(self, timeout: float = 30.0) -> bool:
        """Takes nothing more, and says whether all that was taken is on the disk."""
        self._closing = True
        deadline = time.monotonic() + timeout
        self._intake.close(timeout)
        synced = self._log.close(max(deadline - time.monotonic(), 0.0))
        self._uploader.close(timeout=5.0)
        self._commits.close(timeout=5.0)
        self._cleaner.close(timeout=5.0)
        self._disk.close(timeout=5.0)
        self._folder.close()
        return synced

    # Sessions.

    def serve_session(
        self,
        collection: str,
        context: Any,
        reader: Any,
        writer: Any,
        check_access: Callable[[], None] = lambda: None,
    ) -> None:
        """One DoExchange, from its first message to its end."""
        refusal = self.refusal()
        if refusal is not None:
            raise refusal
        session = Session(self._services, collection, context, reader, writer, check_access)
        with self._sessions_lock:
            self._sessions[id(session)] = session
        try:
            session.run()
        finally:
            with self._sessions_lock:
                del self._sessions[id(session)]
                self._ended = Statistics.sum([self._ended, session.statistics])

    def sessions(self) -> list[Session]:
        with self._sessions_lock:
            return list(self._sessions.values())

    def statistics(self) -> Statistics:
        with self._sessions_lock:
            live = [session.statistics for session in self._sessions.values()]
            return Statistics.sum([self._ended, *live])

    def refusal(self) -> HeadraceError | None:
        """Why nothing is accepted now."""
        if self._fatal is not None:
            return ServerUnavailable(self._fatal.message)
        if self._closing:
            return ServerUnavailable("the server is shutting down")
        if self._log.failure is not None:
            return StorageFull(self._log.failure)
        if self._disk.problem is not None:
            return StorageFull(self._disk.problem)
        return None

    # What everybody may ask.

    @property
    def survives(self) -> dict[str, str]:
        """Says for each tier what a write survives: nothing, the process, or the machine with its disk."""
        in_folder = self._store.url.startswith("file:")
        return {
            Tier.MEMORY.name: "nothing",
            Tier.LOCAL_DISK.name: "process",
            Tier.OBJECT_STORAGE.name: "process" if in_folder else "machine",
            Tier.COMMITTED.name: "process" if kept_on_host(self.catalog) else "machine",
        }

    @property
    def store_url(self) -> str:
        return self._store.url

    @property
    def collections(self) -> Collections:
        return self._collections

    @property
    def progress(self) -> Progress:
        return self._progress

    def watermarks(
        self, collection: str | None = None, may_see: Callable[[str], bool] = lambda _: True
    ) -> dict[str, int]:
        """Returns those of one collection, or of all that a caller may see."""
        shared = {
            Tier.MEMORY.name: self._log.last_lsn,
            Tier.LOCAL_DISK.name: self._progress.of(Tier.LOCAL_DISK, "").lsn,
            Tier.OBJECT_STORAGE.name: self._progress.of(Tier.OBJECT_STORAGE, "").lsn,
        }
        names = filter(may_see, self._collections.names()) if collection is None else [collection]
        committed = min((self._committed_lsn(name) for name in names), default=0)
        return shared | {Tier.COMMITTED.name: committed}

    def lost(self, after: int = 0, collection: str | None = None) -> list[Range]:
        """Returns the ranges of writes that are gone: those of all, and those of one collection."""
        given_up = self._mark.current.lost.get(collection, ()) if collection is not None else ()
        ranges = sorted([*self._lost, *given_up])
        return [(max(first, after + 1), last) for first, last in ranges if last > after]

    def tier_of(self, lsn: int, collection: str | None = None) -> str:
        """How far a write is: a tier, LOST, or UNKNOWN for a number that was never given away."""
        return self.tiers_of([lsn], collection)[lsn]

    def tiers_of(
        self,
        lsns: Iterable[int],
        collection: str | None = None,
        may_see: Callable[[str], bool] = lambda _: True,
    ) -> dict[int, str]:
        watermarks = self.watermarks(collection, may_see)
        lost = self.lost(collection=collection)
        return {lsn: tier_of(lsn, watermarks, lost) for lsn in lsns}

    def flush(self, tier: Tier, timeout: float) -> None:
        """Returns when everything that was accepted before the call is at the tier."""
        target = self._log.last_lsn
        deadline = time.monotonic() + timeout
        self._await(Tier.LOCAL_DISK, target, deadline)
        if tier >= Tier.OBJECT_STORAGE:
            self._log.seal()
            self._await(Tier.OBJECT_STORAGE, target, deadline)
        if tier >= Tier.COMMITTED:
            self._commits.commit_now()
            self._await(Tier.COMMITTED, target, deadline)

    def log_parts(self) -> list[tuple[Path, int]]:
        """Every segment with its length, the open one included. Any of them may be removed at any time."""
        # The open one first: if it is sealed before the others are listed, it is among those.
        path, length = self._log.open_segment
        parts = {segment.path: segment.length for segment in self._index.all()}
        return list(({path: length} | parts).items())

    def lag_seconds(self, tier: Tier) -> float:
        """For how long the oldest write that is not at the tier has waited."""
        if tier is Tier.LOCAL_DISK:
            since = self._log.unsynced_since_us
        else:
            done = self._index.is_uploaded if tier is Tier.OBJECT_STORAGE else self._is_committed
            oldest = self._index.oldest(done)
            since = oldest.first_accepted_us if oldest else self._log.unsealed_since_us
        return 0.0 if since is None else max(now_us() - since, 0) / 1e6

    def health(self, may_see: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
        """Says what works and what does not, of the collections that a caller may see."""
        refusal = self.refusal()
        problems = [refusal.message] if refusal else []
        if self._uploader.failing:
            problems.append(self._uploader.failing)
        if self._cleaner.failing:
            problems.append(self._cleaner.failing)
        failing = dict(self._commits.failing)
        problems += [said for name, said in failing.items() if not name or may_see(name)]
        backed_up = self._backed_up()
        if backed_up:
            problems.append(backed_up)
        if not self._commits.knows_tables and not failing:
            problems.append("the tables have not said yet how far they are")
        if self._fatal is None and not self._closing:  # else tasks have ended, and the reason is told
            problems += self._heartbeats.problems()
        return {
            # Also if what is wrong is not for this caller to know.
            "status": "refusing" if refusal else "degraded" if problems or failing else "ok",
            # While no stream is read, what is sent waits in the network.
            "accepts_writes": refusal is None and backed_up is None,
            "problems": problems,
            "term": self._identity.term,
            "epoch": self._identity.term,  # what it was called before
            "log_id": self._identity.log_id,
            "watermarks": self.watermarks(may_see=may_see),
            "log_bytes": self._index.bytes,
            "waiting_bytes": self._log.waiting_bytes + self._intake.queued_bytes,
            "disk_free_bytes": self._disk.free,
            "disk_needed_bytes": self._disk.needed,
            "heartbeat_ages": self._heartbeats.ages(),
            "backlogs": self._backlogs(),
            "sessions": [
                {
                    "peer": session.peer,
                    "collection": session.collection,
                    "producer": session.producer or None,
                    "writes": session.statistics.writes,
                    "throttled": session.throttled,
                }
                for session in self.sessions()
            ],
        }

    @property
    def fatal(self) -> str | None:
        """Why this process will accept nothing any more."""
        if self._log.has_failed:
            return self._log.failure
        return self._fatal.message if self._fatal else None

    @property
    def commits(self) -> int:
        return self._commits.commits

    @property
    def commit_failures(self) -> int:
        return self._commits.failures

    @property
    def upload_failures(self) -> int:
        return self._uploader.failures

    # What happens inside.

    def _sealed(self, segment: Segment) -> None:
        self._index.add(segment)
        self._uploader.add(segment)

    def _uploaded(self, segment: Segment) -> None:
        self._index.uploaded(segment)
        self._progress.advance(Tier.OBJECT_STORAGE, segment.last_lsn)

    def _committed(self, collection: str, at: Committed) -> None:
        # A new dict: the log's thread may be writing the old one down.
        self._state.committed = self._state.committed | {collection: at}
        self._producers.committed(collection, at.lsn)

    def _clean_up(self) -> None:
        self._producers.forget_silent(self._log.uptime_us, lambda name: name in self._state.producers)
        self._cleaner.clean()

    def _prove(self, newest: int) -> None:
        self._mark.adopt(self._folder.prove_late(self._store, self._identity, newest))

    def _stop_accepting(self, error: Terminal) -> None:
        log.critical("%s", error.message)
        self._fatal = error

    def _backed_up(self) -> str | None:
        most = self._settings.most_log_bytes
        if self._index.bytes <= most:
            return None
        # Not all of them wait: those at the front may be kept for the log's state alone.
        waiting = self._index.needed_bytes(self._commits.committed)
        if waiting <= most:
            return None
        where = "object storage" if not self._uploader.is_idle else "Iceberg"
        return f"{waiting:,} bytes of log wait for {where}"

    def _owed_bytes(self) -> int:
        """Returns how much room on the log's disk it takes to write, and to commit, what was taken."""
        waiting = self._log.waiting_bytes + self._intake.queued_bytes
        return waiting + (min(self._index.bytes, commit_loop.MOST_BYTES) if self._commits_here else 0)

    def _backlogs(self) -> dict[str, int]:
        """Returns for tasks that pass segments on how many wait for them."""
        uploaded = filter(self._index.is_uploaded, self._index.all())
        return {
            "uploader": self._uploader.backlog,
            "commits": sum(not self._is_committed(segment) for segment in uploaded),
            "cleaner": self._cleaner.backlog,
        }

    def _is_committed(self, segment: Segment) -> bool:
        return is_committed(segment, lambda name: self._progress.of(Tier.COMMITTED, name).lsn)

    def _is_through(self, tier: Tier, lsn: int) -> bool:
        if tier is not Tier.COMMITTED:
            return self._progress.of(tier, "").lsn >= lsn
        oldest = self._index.oldest(self._is_committed)
        return oldest is None or oldest.header.first_lsn > lsn

    def _committed_lsn(self, collection: str) -> int:
        """The table's watermark, or more where nothing of the collection waits."""
        # Looked at first: a segment that is sealed and uploaded in between must be among those below.
        uploaded = self._progress.of(Tier.OBJECT_STORAGE, collection).lsn
        committed = self._progress.of(Tier.COMMITTED, collection).lsn
        waiting = (
            segment for segment in self._index.all() if segment.last_lsns.get(collection, 0) > committed
        )
        oldest = next(waiting, None)
        return max(committed, uploaded if oldest is None else min(oldest.header.first_lsn - 1, uploaded))

    def _await(self, tier: Tier, lsn: int, deadline: float) -> None:
        left = max(deadline - time.monotonic(), 0.0)
        if not self._progress.wait_for(lambda: self._is_through(tier, lsn), left):
            raise WriteTimeout(f"not everything reached {tier.name} in time{self._why_not(tier)}")

    def _why_not(self, tier: Tier) -> str:
        failing = {
            Tier.LOCAL_DISK: self._log.failure,
            Tier.OBJECT_STORAGE: self._uploader.failing,
            Tier.COMMITTED: next(iter(self._commits.failing.values()), None),
        }[tier]
        return f": {failing}" if failing else ""

    def _describe_session(
        self, collection: str, options: Options, producer: Producer | None
    ) -> dict[str, Any]:
        after = options.resume_after
        runs = producer.after(after) if producer is not None and after is not None else []
        return {
            "collection": collection,
            "last_seq": producer.last_seq or None if producer is not None else None,
            "forgotten_lsn": self._producers.forgotten_lsn,
            "assigned": [run.to_json() for run in runs],
            "lost": self.lost(after, collection) if after is not None else [],
            "watermarks": self.watermarks(collection),
            "survives": self.survives,
        }
