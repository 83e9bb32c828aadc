"""Engines and servers to test with, and what stands in for object storage and Iceberg to make them fail."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import pyarrow as pa
from pyarrow import flight

from headrace.errors import EndpointUnavailable, HeadraceError
from headrace.ingest.access import Access
from headrace.ingest.engine import Engine
from headrace.ingest.engine_settings import EngineSettings
from headrace.ingest.iceberg.errors import TableMoved
from headrace.ingest.iceberg.jobs import CommitJob
from headrace.ingest.server import IngestServer, Listen
from headrace.ingest.store import SegmentStore
from headrace.model.tiers import Tier
from headrace.wal.batches import index_writes
from headrace.wal.files import Files
from headrace.wal.position import LogPosition, SegmentMark
from headrace.wal.records import SegmentHeader
from headrace.wal.segments import Segment, map_segment
from headrace.wal.state import Committed
from headrace.wal.writer import LogLimits
from tests.waiting import DEADLINE_SECONDS, wait_until

__all__ = [
    "FakeIceberg",
    "LocalSession",
    "Store",
    "running_engine",
    "running_server",
]

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
    files: Files | None = None,
    store: SegmentStore | None = None,
    clock: Callable[[], float] = time.monotonic,
    **settings: Any,
) -> Iterator[Engine]:
    engine = Engine(settings_for(data, **settings), files=files, store=store, clock=clock)
    try:
        engine.start()
        yield engine
    finally:
        engine.close(DEADLINE_SECONDS)


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
        parts = [map_segment(part.path)[: part.length] for part in job.segments]
        for located in index_writes(parts).get(name, []):
            writes = located.writes
            new = range(max(writes.first_lsn, before.lsn + 1), min(writes.last_lsn, job.through) + 1)
            self.lsns.setdefault(name, []).extend(new)
        header = SegmentHeader.decode(parts[-1])
        mark = SegmentMark(header.number, header.nonce, len(parts[-1]))
        position = LogPosition(job.through, job.term, job.boot, mark)
        self.committed[name] = Committed(job.through, (before.snapshot_id or 1000) + 1, position)
        return self.committed[name]


class LocalSession:
    """A stream of writes without a network: what a client sends is in a queue, what it gets in lists."""

    def __init__(
        self, engine: Engine, collection: str = "orders", options: dict[str, Any] | None = None
    ) -> None:
        self.acks: list[tuple[int, str]] = []
        self.messages: list[dict[str, Any]] = []
        """All `app_metadata`, with and without a batch."""
        self.error: BaseException | None = None
        self.cancelled = False
        self.writing: Callable[[], None] = lambda: None
        """Called before each message is written."""
        self._incoming: queue.SimpleQueue[SimpleNamespace | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._serve, args=[engine, collection], daemon=True)
        self._thread.start()
        if options is not None:
            self.send(None, **options)

    # What a test calls.

    def send(self, data: pa.RecordBatch | None, **metadata: Any) -> Self:
        raw = pa.py_buffer(json.dumps(metadata).encode()) if metadata else None
        self._incoming.put(SimpleNamespace(data=data, app_metadata=raw))
        return self

    def write(self, *ids: int, **metadata: Any) -> int:
        """Sends a write and waits for its LSN; for a session that hears of MEMORY."""
        before = len(self.lsns("MEMORY"))
        self.send(batch(*ids), **metadata)
        wait_until(lambda: len(self.lsns("MEMORY")) > before or self.error, "an acknowledgement")
        return self.lsns("MEMORY")[-1]

    def lsns(self, level: str) -> list[int]:
        return [lsn for lsn, of in list(self.acks) if of == level]

    def await_level(self, lsn: int, level: str) -> None:
        wait_until(lambda: lsn in self.lsns(level), f"LSN {lsn} at {level}")

    def end(self) -> None:
        """Ends the stream as a client does that is done writing."""
        self._incoming.put(None)

    def done(self) -> None:
        """Ends the stream, and waits until the server is done too."""
        self.end()
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()

    def hang_up(self) -> None:
        """Goes away in the middle."""
        self.cancelled = True
        self._incoming.put(None)

    def join(self) -> BaseException | None:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive()
        return self.error

    @property
    def greeting(self) -> dict[str, Any]:
        wait_until(lambda: any("session" in message for message in self.messages))
        greeting: dict[str, Any] = next(one["session"] for one in self.messages if "session" in one)
        return greeting

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._thread.is_alive():
            self.hang_up()
            self._thread.join(DEADLINE_SECONDS)

    # What the server calls.

    def peer(self) -> str:
        return "test"

    def is_cancelled(self) -> bool:
        return self.cancelled

    def read_chunk(self) -> SimpleNamespace:
        chunk = self._incoming.get()
        if self.cancelled:
            raise flight.FlightCancelledError("the client is gone")
        if chunk is None:
            raise StopIteration
        return chunk

    def begin(self, _schema: pa.Schema) -> None:
        pass

    def write_batch(self, data: pa.RecordBatch) -> None:
        self._before_writing()
        rows = data.to_pydict()
        self.acks += zip(rows["lsn"], rows["durability_level"], strict=True)

    def write_metadata(self, data: bytes) -> None:
        self._before_writing()
        self.messages.append(json.loads(data))

    def write_with_metadata(self, data: pa.RecordBatch, metadata: bytes) -> None:
        self._before_writing()
        self.messages.append(json.loads(metadata))
        rows = data.to_pydict()
        self.acks += zip(rows["lsn"], rows["durability_level"], strict=True)

    def _before_writing(self) -> None:
        self.writing()
        if self.cancelled:
            raise flight.FlightCancelledError("the client is gone")

    def _serve(self, engine: Engine, collection: str) -> None:
        try:
            engine.serve_session(collection, self, self, self)
        except Exception as error:  # noqa: BLE001 - for the test to look at
            self.error = error


def write_all(engine: Engine, *ids: int, collection: str = "orders", level: Tier | None = None) -> list[int]:
    """One write for each id; their LSNs, once all are at the level."""
    with LocalSession(engine, collection) as session:
        lsns = [session.write(number) for number in ids]
        if level is not None:
            session.await_level(lsns[-1], level.name)
    return lsns
