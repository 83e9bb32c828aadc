"""Engines and servers to test with, and what stands in for object storage and Iceberg to make them fail."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.errors import EndpointUnavailable, HeadraceError
from headrace.ingest.access import Access
from headrace.ingest.disk_space import room_of
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import EngineSettings, LogLimits
from headrace.ingest.iceberg.errors import CommitterDied, TableMoved
from headrace.ingest.iceberg.jobs import CommitJob
from headrace.ingest.quarantine.stuck import StuckLimits
from headrace.ingest.server import IngestServer, Listen
from headrace.ingest.store import SegmentStore
from headrace.model.tiers import Tier
from headrace.wal.batches import index_writes
from headrace.wal.position import LogPosition
from headrace.wal.segments import Segment, map_segment
from headrace.wal.state import Committed
from tests.ingest.flight_client import Stream
from tests.waiting import DEADLINE_SECONDS, wait_until
from tests.wal.support import Disk

__all__ = [
    "PRODUCER_SILENCE_SECONDS",
    "FakeIceberg",
    "LocalSession",
    "Store",
    "running_engine",
    "running_server",
]

PATIENT = StuckLimits(refusals=10**9, failures=10**9, deaths=10**9, log_share=10**9)
"""Nothing is quarantined."""

PRODUCER_SILENCE_SECONDS = 7 * 24 * 3600
"""For so long a producer has to be silent before it is forgotten."""

AT_ONCE = LogLimits(segment_seconds=0.001)
"""Segments are sealed as soon as they are wanted."""


def batch(*ids: int) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64())})


def settings_for(data: Path, **changes: Any) -> EngineSettings:
    """With segments and commits as quick as they can be."""
    return EngineSettings(data, **{"commit_interval": 0.01, "log": AT_ONCE, **changes})


@contextmanager
def running_engine(
    data: Path,
    *,
    disk: Disk | None = None,
    store: SegmentStore | None = None,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> Iterator[Engine]:
    room = room_of if disk is None else disk.room
    engine = Engine(settings_for(data, **settings), hooks=disk, store=store, clock=clock, room=room)
    try:
        engine.start()
        yield engine
    finally:
        engine.close(DEADLINE_SECONDS)


def copy_image(data: Path, image: Path) -> None:
    """Copies a folder as an image of its machine does, by which nothing shows that it is a copy."""
    shutil.copytree(data, image)
    identity = json.loads((image / "identity.json").read_text())
    del identity["place"]
    (image / "identity.json").write_text(json.dumps(identity))


@contextmanager
def running_server(data: Path, *, engine: Engine | None = None, **settings: Any) -> Iterator[IngestServer]:
    """A server on a free port of this machine, with everything in one folder and without tokens."""
    server = IngestServer(engine or settings_for(data, **settings), Listen(port=0), Access())
    try:
        server.start()
        yield server
    finally:
        server.stop()


class Store(SegmentStore):
    """Real files. Puts fail while there is a reason to, and wait while they are held."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.absolute().as_uri())
        self.broken: str | None = None
        self.removing_fails = False
        self.holding = threading.Event()
        self.removed: list[int] = []
        self.after_put: Callable[[], None] = lambda: None
        self._listing = threading.Lock()
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def put(self, segment: Segment, term: int) -> None:
        self._pass()
        super().put(segment, term)

    def has(self, segment: Segment) -> bool:
        self._pass()
        return super().has(segment)

    def check_owner(self, term: int) -> None:
        self.after_put()
        super().check_owner(term)

    def remove(self, number: int) -> None:
        if self.removing_fails:
            raise EndpointUnavailable("the store removes nothing")
        with self._listing:
            super().remove(number)
        self.removed.append(number)

    def numbers(self) -> list[int]:
        """Of one moment: a folder is listed in steps, and what goes meanwhile would look like a hole."""
        with self._listing:
            return super().numbers()

    def _pass(self) -> None:
        if not self._open.is_set():
            self.holding.set()
            assert self._open.wait(DEADLINE_SECONDS)
        if self.broken:
            raise EndpointUnavailable(self.broken)


@contextmanager
def away(store: Store) -> Iterator[None]:
    """The store answers nothing that is asked at a start."""

    def unavailable(*_: object) -> Any:
        raise EndpointUnavailable("the store is away")

    store.broken = "the store is away"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("join", "numbers", "log_id"):
            patch.setattr(store, name, unavailable)
        yield
    store.broken = None


@dataclass
class FakeIceberg:
    """Tables in memory, which outlive engines. Put `process` in the place of `CommitterProcess`."""

    lsns: dict[str, list[int]] = field(default_factory=dict)
    """The writes in each table, in the order in which they were committed."""
    committed: dict[str, Committed] = field(default_factory=dict)
    problem: HeadraceError | None = None
    """Fails all calls."""
    problems: dict[str, HeadraceError] = field(default_factory=dict)
    """Fails single collections."""
    jobs: list[CommitJob] = field(default_factory=list)
    holding: threading.Event = field(default_factory=threading.Event)
    answers_lost: bool = False
    """Commits, and fails nevertheless."""
    deadly: Callable[[CommitJob], bool] = lambda _job: False
    """Whether the process dies of a job."""
    death: CommitterDied = field(default_factory=lambda: CommitterDied("it ended with -11"))

    def __post_init__(self) -> None:
        self._committing = threading.Lock()  # several engines may have the same tables
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def process(self, _settings: object) -> FakeIceberg:
        return self

    def watermarks(
        self, collections: Iterable[str], _timeout: float, _log_id: str
    ) -> dict[str, Committed | HeadraceError]:
        if self.problem:
            raise self.problem
        return {name: self.committed.get(name, Committed(0)) for name in collections}

    def positions(self, _log_id: str, collections: Iterable[str], timeout: float) -> dict[str, LogPosition]:
        answers = self.watermarks(collections, timeout, _log_id)
        return {name: at.position for name, at in answers.items() if isinstance(at, Committed)}

    def commit(self, job: CommitJob, _timeout: float) -> dict[str, Committed | HeadraceError]:
        self.jobs.append(job)
        if self.deadly(job):
            raise self.death
        if not self._open.is_set():
            self.holding.set()
            assert self._open.wait(DEADLINE_SECONDS)
        if self.problem and not self.answers_lost:
            raise self.problem
        with self._committing:
            outcome = {one.name: self._commit(one.name, job) for one in job.collections}
        if self.answers_lost:
            raise self.problem or EndpointUnavailable("the answer was lost")
        return outcome

    def kill(self) -> None:
        self.problem = EndpointUnavailable("the committer was killed")
        self._open.set()

    def close(self) -> None:
        pass

    def _commit(self, name: str, job: CommitJob) -> Committed | HeadraceError:
        if name in self.problems:
            return self.problems[name]
        before = self.committed.get(name, Committed(0))
        after = job.after[name]
        if before.position != after and before.lsn < job.through:
            return TableMoved(f"{name} is at {before.position} and was at {after}")
        if before.lsn >= job.through:
            return before
        wanted_after = max(before.lsn, job.dropped.get(name, 0))
        parts = [map_segment(part.path)[: part.length] for part in job.segments]
        for located in index_writes(parts).get(name, []):
            writes = located.writes
            new = range(max(writes.first_lsn, wanted_after + 1), min(writes.last_lsn, job.through) + 1)
            self.lsns.setdefault(name, []).extend(new)
        position = LogPosition(job.through, job.term, job.boot, job.mark)
        self.committed[name] = Committed(job.through, (before.snapshot_id or 1000) + 1, position)
        return self.committed[name]


# What a client that writes meets on a stream that has ended; why it has is read.
_ENDED = (flight.FlightError, pa.ArrowException, OSError)


class LocalSession:
    """A stream of writes from a stock client, to the port of an engine that has no server."""

    def __init__(
        self, engine: Engine, collection: str = "orders", options: dict[str, Any] | None = None
    ) -> None:
        self._stream = Stream(f"grpc://127.0.0.1:{_port_of(engine)}", collection)
        if options is not None:
            with suppress(*_ENDED):
                self._stream.options(**options)

    def send(self, data: pa.RecordBatch, **metadata: Any) -> Self:
        with suppress(
            flight.FlightError, pa.ArrowException, OSError
        ):  # it may have ended, and says why where it is read
            self._stream.send(data, **metadata)
        return self

    def write(self, *ids: int, **metadata: Any) -> int:
        """Sends a write and waits for its LSN; for a session that hears of MEMORY."""
        before = len(self.lsns("MEMORY"))
        self.send(batch(*ids), **metadata)
        wait_until(lambda: len(self.lsns("MEMORY")) > before or self.error, "an acknowledgement")
        return self.lsns("MEMORY")[-1]

    @property
    def acks(self) -> list[tuple[int, str]]:
        return [(lsn, level) for lsn, level, _ in list(self._stream.acks)]

    @property
    def messages(self) -> list[dict[str, Any]]:
        """All `app_metadata`, with and without a batch."""
        return self._stream.messages

    @property
    def error(self) -> Exception | None:
        """What the stream has ended with: ours, if the server said one."""
        return _ours(self._stream.error)

    def lsns(self, level: str) -> list[int]:
        return self._stream.lsns(level)

    def await_level(self, lsn: int, level: str) -> None:
        wait_until(lambda: lsn in self.lsns(level) or self.error, f"LSN {lsn} at {level}")
        assert lsn in self.lsns(level), self.error

    def end(self) -> None:
        """Ends the stream as a client does that is done writing."""
        self._stream.writer.done_writing()

    def done(self) -> None:
        """Ends the stream, and waits until the server is done too."""
        self.end()
        self.join()

    def hang_up(self) -> None:
        """Goes away in the middle."""
        self._stream.hang_up()

    def join(self) -> Exception | None:
        return _ours(self._stream.join())

    @property
    def greeting(self) -> dict[str, Any]:
        greeting: dict[str, Any] = self._stream.said("session")
        return greeting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()


def _port_of(engine: Engine) -> int:
    if engine._port is None:
        listen = {"host": "127.0.0.1", "port": 0, "tls": None, "others": Path("/nowhere")}
        engine.open_port(listen, Access())
    assert engine._port is not None
    return engine._port.port


def _ours(error: Exception | None) -> Exception | None:
    if isinstance(error, flight.FlightError) and error.extra_info:
        return HeadraceError.from_json(error.extra_info.decode())
    return error


def write_all(engine: Engine, *ids: int, collection: str = "orders", level: Tier | None = None) -> list[int]:
    """One write for each id; their LSNs, once all are at the level."""
    with LocalSession(engine, collection) as session:
        lsns = [session.write(number) for number in ids]
        if level is not None:
            session.await_level(lsns[-1], level.name)
    return lsns
