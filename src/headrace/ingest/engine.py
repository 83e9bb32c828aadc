"""The server without its port: the log, the uploader, the committer, and what sessions share."""

from __future__ import annotations

import logging
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any

from headrace._native import Port
from headrace.errors import EndpointUnavailable, HeadraceError, Terminal, WriteTimeout
from headrace.ingest import cleaner, commit_loop, connections, control, disk_space, uploader
from headrace.ingest import log as native_log
from headrace.ingest.access import Access
from headrace.ingest.cleaner import Cleaner
from headrace.ingest.collections import Collections
from headrace.ingest.commit_loop import CommitLoop, ServerRun
from headrace.ingest.connections import Connections
from headrace.ingest.control import Control, Facts
from headrace.ingest.data_folder import DataFolder
from headrace.ingest.disk_space import DiskSpace, room_of, shares_disk
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.heartbeats import Heartbeats
from headrace.ingest.iceberg.committer import CommitterProcess
from headrace.ingest.iceberg.settings import embedded_catalog, kept_on_host
from headrace.ingest.log import Hooks, Log
from headrace.ingest.log_room import LogRoom
from headrace.ingest.low_water import LowWaterMark
from headrace.ingest.producers import Run, collect_into, joined, remembered
from headrace.ingest.progress import Progress, tier_of
from headrace.ingest.quarantine.calls import QuarantineCalls
from headrace.ingest.quarantine.lifecycle import Quarantine
from headrace.ingest.quarantine.side_log import SideLog
from headrace.ingest.quarantine.stuck import Stuck
from headrace.ingest.reach import Reach
from headrace.ingest.resends import Resends
from headrace.ingest.segment_index import SegmentIndex
from headrace.ingest.statistics import Statistics, Stream
from headrace.ingest.store import SegmentStore
from headrace.ingest.table_history import TableCheck
from headrace.ingest.uploader import Uploader
from headrace.model.tiers import Tier
from headrace.wal.segments import Segment
from headrace.wal.state import Range

log = logging.getLogger(__name__)

_HANG_UP_SECONDS = 5.0


class Engine:
    """Started once; every method is thread-safe. `hooks`, `store` and `room` are for tests that make them
    fail, and `clock` is by which tasks that hang are told."""

    def __init__(
        self,
        settings: EngineSettings,
        hooks: Hooks | None = None,
        store: SegmentStore | None = None,
        clock: Callable[[], float] = time.monotonic,
        room: Callable[[Path], tuple[int, int]] = room_of,
    ) -> None:
        self._settings = settings
        self._clock = clock
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
            term = opened.identity.term
            self._mark = LowWaterMark(
                opened.low_water, settings.data, self._store, term, is_compared=opened.is_proven
            )
            self._quarantine = Quarantine(self._mark, SideLog(settings.data, self._store, term), term)
            in_side_logs: dict[tuple[str, str], list[Run]] = defaultdict(list)
            self._quarantine.load(settings.accept_loss, collect_into(in_side_logs))
            self._log = Log(
                self._folder.log,
                term,
                opened.recovered,
                remembered(joined(in_side_logs, runs), opened.recovered),
                settings,
                hooks,
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
        self._progress = Progress(self._log.native)
        self._heartbeats.watch("log", native_log.LONGEST_SILENCE_SECONDS, self._log.pulse)
        self._uploader = Uploader(
            self._store,
            self._identity.term,
            prove=None if opened.is_proven else partial(self._prove, recovered.next_number - 1),
            on_uploaded=self._uploaded,
            on_fatal=self._stop_accepting,
            beat=self._heartbeats.expect("uploader", uploader.LONGEST_SILENCE_SECONDS),
        )
        self._collections = Collections(state.collections, self._log.declare)
        self._commits = CommitLoop(
            committer,
            self._index,
            self._collections,
            self._progress,
            ServerRun(self._identity.log_id, self._identity.term, secrets.token_hex(8)),
            self._quarantine,
            Stuck(settings.stuck),
            interval=settings.commit_interval,
            timeout=settings.commit_timeout,
            most_log_bytes=settings.most_log_bytes,
            check=TableCheck(
                self._identity.term,
                state.last_lsn,
                self._index,
                self._mark,
                settings.accept_loss,
                on_lost=self._gave_up,
            ),
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
            lambda: self._commits.confirmed,
            self._quarantine,
            on_fatal=self._stop_accepting,
            beat=self._heartbeats.expect("cleaner", cleaner.LONGEST_SILENCE_SECONDS),
        )
        self._room = LogRoom(
            self._index,
            self._uploader,
            self._commits,
            self._cleaner,
            self._quarantine,
            settings.most_log_bytes,
        )
        self.quarantine_calls = QuarantineCalls(
            self._quarantine,
            self._mark,
            self._commits,
            self._progress,
            self._log,
            self._break_off,
            partial(self.flush, Tier.OBJECT_STORAGE),
        )
        self._reach = Reach(self._log, self._index, self._collections, self._progress, self._quarantine)
        self._commits_here = shares_disk(self._folder.log, self.catalog.properties.get("warehouse", ""))
        self._disk = DiskSpace(
            self._folder.log,
            settings.free_bytes,
            self._owed_bytes,
            room,
            self._log.native.set_disk_problem,
            beat=self._heartbeats.expect("disk", disk_space.LONGEST_SILENCE_SECONDS),
        )
        self._fatal: Terminal | None = None
        self._closing = False
        self._control = Control(
            self._log,
            self._collections,
            on_sealed=self._sealed,
            facts=self._facts,
            on_turn=self._turn,
            beat=self._heartbeats.expect("control", control.LONGEST_SILENCE_SECONDS),
        )
        self._port: Port | None = None
        self._connections: Connections | None = None
        for name in self._mark.current.lost:
            self._tell_given_up(name)
        self._refusing = Lock()  # or what one change has read could undo what another has said since
        self._quarantine.on_change = self._refuse_quarantined
        self._refuse_quarantined()

    def start(self) -> None:
        self._settle_resends()
        # Before the control starts, which adds more of them: they are uploaded in order.
        for segment in self._index.all():
            self._uploader.add(segment, may_be_there=True)
        self._disk.start()
        self._control.start()
        self._uploader.start()
        self._cleaner.start()
        self._commits.start()

    def close(self, timeout: float = 30.0) -> bool:
        """Takes nothing more, and says whether all that was taken is on the disk."""
        self._closing = True
        synced = self._log.close(timeout)
        self._uploader.close(timeout=5.0)
        self._commits.close(timeout=5.0)
        self._cleaner.close(timeout=5.0)
        self._disk.close(timeout=5.0)
        if self._port is not None:
            self._port.stop(_HANG_UP_SECONDS)
        self._control.close(timeout=5.0)
        self._folder.close()
        return synced

    # Streams of writes.

    def open_port(self, listen: dict[str, Any], access: Access) -> Port:
        """Takes streams from when it returns; the server that answers other calls listens already."""
        limits = self._settings.session
        self._control.tokens = access.rows
        self._port = Port(
            self._log.native,
            {
                **listen,
                "tokens": access.rows(),
                "message_bytes": limits.message_bytes,
                "receive_bytes": limits.receive_bytes,
                "connections": connections.most_connections(),
            },
        )
        access.refused_elsewhere = self._port.unauthenticated
        self._heartbeats.watch("port", connections.LONGEST_SILENCE_SECONDS, self._port.pulse)
        self._connections = Connections(self._port, self._clock)
        return self._port

    def sessions(self) -> list[Stream]:
        return self._log.streams()

    def statistics(self) -> Statistics:
        counted = self._log.statistics()
        refused, disconnects = self._port.unopened() if self._port is not None else (0, 0)
        return replace(
            counted, refused=counted.refused + refused, disconnects=counted.disconnects + disconnects
        )

    def refusal(self) -> HeadraceError | None:
        """Why nothing is accepted now."""
        return self._log.refusal()

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
        return self._reach.watermarks(collection, may_see)

    def lost(self, after: int = 0, collection: str | None = None) -> list[Range]:
        """Returns the ranges of writes that are gone: those of all, and those of one collection."""
        given_up = self._mark.current.lost.get(collection, ()) if collection is not None else ()
        ranges = sorted({*self._lost, *given_up})  # segments that were given up are in both
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
        # Those of the log first: what is taken over from it meanwhile is among the others.
        of_log = self._log.parts()
        return list((of_log | {segment.path: segment.length for segment in self._index.all()}).items())

    @property
    def quarantine(self) -> Quarantine:
        return self._quarantine

    def lag_seconds(self, tier: Tier) -> float:
        """For how long the oldest write that is not at the tier has waited."""
        return self._reach.lag_seconds(tier)

    def health(self, may_see: Callable[[str], bool] = lambda _: True) -> dict[str, Any]:
        """Says what works and what does not, of the collections that a caller may see."""
        refusal, backed_up = self.refusal(), self._room.backed_up()
        failing, quarantined = dict(self._commits.failing), self._quarantine.listed()
        said = [
            refusal.message if refusal else None,
            self._uploader.failing,
            self._cleaner.failing,
            *(text for name, text in failing.items() if not name or may_see(name)),
            *(one.problem for one in quarantined if may_see(one.collection)),
            backed_up,
            self._connections.problem if self._connections is not None else None,
        ]
        problems = [text for text in said if text]
        if not self._commits.knows_tables and not failing:
            problems.append("the tables have not said yet how far they are")
        if self._fatal is None and not self._closing:  # else tasks have ended, and the reason is told
            problems += self._heartbeats.problems()
        return {
            # Also if what is wrong is not for this caller to know.
            "status": "refusing" if refusal else "degraded" if problems or failing or quarantined else "ok",
            # While no stream is read, what is sent waits in the network.
            "accepts_writes": refusal is None and backed_up is None,
            "problems": problems,
            "term": self._identity.term,
            "epoch": self._identity.term,  # what it was called before
            "log_id": self._identity.log_id,
            "watermarks": self.watermarks(may_see=may_see),
            "log_bytes": self._room.used_bytes,
            "quarantine": [one.to_json() for one in quarantined if may_see(one.collection)],
            "waiting_bytes": self._log.waiting_bytes,
            "disk_free_bytes": self._disk.free,
            "disk_needed_bytes": self._disk.needed,
            "heartbeat_ages": self._heartbeats.ages(),
            "backlogs": self._backlogs(),
            "connections": self._connections.to_json() if self._connections is not None else None,
            "sessions": [session.to_json() for session in self.sessions()],
        }

    @property
    def fatal(self) -> str | None:
        """Why this process will accept nothing any more."""
        health = self._log.health
        if health.has_failed:
            return health.failure
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

    def _break_off(self, collection: str) -> None:
        self._tell_given_up(collection)
        self._log.break_off(collection)

    def _tell_given_up(self, collection: str) -> None:
        resends = self._mark.current.resends.get(collection, Resends())
        self._log.set_given_up(collection, self.lost(collection=collection), resends.without(self._lost))

    def _gave_up(self, collection: str) -> None:
        self._break_off(collection)
        self._settle_resends()

    def _settle_resends(self) -> None:
        """Notes how far the producers are of whose writes some were given up, and nobody knows which: what
        they write from now on is not among them."""
        mark = self._mark.current
        if self._mark.is_compared and mark.settled(self._log.known) != mark:
            with suppress(EndpointUnavailable):  # then it is done at the next start
                self._mark.move(lambda mark: mark.settled(self._log.known))

    def _refuse_quarantined(self) -> None:
        with self._refusing:
            for name in self._collections.names():
                self._log.native.set_collection_refusal(name, self._quarantine.reason(name))

    def _sealed(self, segment: Segment) -> None:
        self._index.add(segment)
        self._uploader.add(segment)

    def _uploaded(self, segment: Segment) -> None:
        self._index.uploaded(segment)
        self._progress.uploaded(segment.header.number, segment.last_lsn)
        self._look_at_room()

    def _clean_up(self) -> None:
        self._log.native.forget_silent()
        self._cleaner.clean()
        self._look_at_room()

    def _turn(self) -> None:
        self._look_at_room()
        if self._connections is not None:
            self._connections.look()

    def _look_at_room(self) -> None:
        self._log.native.set_backed_up(self._room.backed_up())

    def _prove(self, newest: int) -> None:
        before = self._mark.current.lost
        self._mark.adopt(self._folder.prove_late(self._store, self._identity, newest))
        try:
            self._quarantine.load(self._settings.accept_loss)
        finally:  # it may be tried again, and what was adopted is no news then
            for name, lost in self._mark.current.lost.items():
                if lost != before.get(name):
                    self._break_off(name)
            self._refuse_quarantined()
        self._settle_resends()

    def _stop_accepting(self, error: Terminal) -> None:
        log.critical("%s", error.message)
        self._fatal = error
        self._log.native.stop_accepting(error.message)

    def _owed_bytes(self) -> int:
        """Returns how much room on the log's disk it takes to write, and to commit, what was taken."""
        waiting = self._log.waiting_bytes
        return waiting + (min(self._index.bytes, commit_loop.MOST_BYTES) if self._commits_here else 0)

    def _backlogs(self) -> dict[str, int]:
        """Returns for tasks that pass segments on how many wait for them."""
        uploaded = filter(self._index.is_uploaded, self._index.all())
        return {
            "uploader": self._uploader.backlog,
            "commits": sum(not self._reach.is_committed(segment) for segment in uploaded),
            "cleaner": self._cleaner.backlog,
        }

    def _await(self, tier: Tier, lsn: int, deadline: float) -> None:
        left = max(deadline - time.monotonic(), 0.0)
        if not self._progress.wait_for(lambda: self._reach.is_through(tier, lsn), left):
            raise WriteTimeout(f"not everything reached {tier.name} in time{self._why_not(tier)}")

    def _why_not(self, tier: Tier) -> str:
        failing = {
            Tier.LOCAL_DISK: self._log.health.failure,
            Tier.OBJECT_STORAGE: self._uploader.failing,
            Tier.COMMITTED: next(iter(self._commits.failing.values()), None) or self._quarantine.problem,
        }[tier]
        return f": {failing}" if failing else ""

    def _facts(self, collection: str, resume_after: int | None) -> Facts:
        return Facts(
            self.watermarks(collection)[Tier.COMMITTED.name],
            self.lost(resume_after, collection) if resume_after is not None else [],
            self.survives,
        )
