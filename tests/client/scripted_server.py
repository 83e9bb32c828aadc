"""A Flight server that speaks the ingest protocol and fails as a test tells it to.

It keeps everything in memory. A tier moves when a test says so (`reach`), or with every write up to `auto`.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyarrow import flight

from headrace.errors import Fenced, HeadraceError, ServerUnavailable, Transient, UnknownProducer
from headrace.model.tiers import Tier
from tests.client.proxy import Proxy

ACKS = pa.schema(
    [
        ("lsn", pa.uint64()),
        ("durability_level", pa.utf8()),
        ("is_durability_update", pa.bool_()),
        ("timestamp", pa.timestamp("us")),
    ]
)

POLL_SECONDS = 0.01

pa.array([1])  # has Arrow load pandas, which takes seconds, now and not in the middle of a test


@dataclass
class Logged:
    producer: str
    seq: int
    lsn: int
    rows: list[dict[str, Any]]


@dataclass
class LiveSession:
    producer: str
    collection: str
    writer: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    messages: int = 0
    last_lsn: int = 0
    announced: list[int] = field(default_factory=lambda: [0] * 4)
    is_broken: bool = False
    is_fenced: bool = False
    first_seq: int | None = None
    """The highest number that its producer may begin with; None if it is known."""


class Break(Exception):
    """Ends a stream as a lost connection would."""


def as_flight_error(error: HeadraceError) -> Exception:
    kind = flight.FlightUnavailableError if isinstance(error, Transient) else flight.FlightServerError
    failure: Exception = kind(error.message, error.to_json().encode())
    return failure


class TakeHeaders(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self) -> None:
        self.seen: list[dict[str, list[str]]] = []

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        self.seen.append(headers)


class ScriptedServer(flight.FlightServerBase):  # type: ignore[misc]
    def __init__(self, port: int = 0, auto: Tier | None = Tier.COMMITTED, **options: Any) -> None:
        self.headers = TakeHeaders()
        location = f"grpc://127.0.0.1:{port}"
        super().__init__(options.pop("location", location), middleware={"headers": self.headers}, **options)
        self.auto = auto
        self.lock = threading.RLock()
        self.log: list[Logged] = []
        self.forgotten: dict[str, int] = {}
        """By producer, the last sequence number of which the LSNs are no longer remembered."""
        self.forgotten_lsn = 0
        self.unsure_until = 0
        self.next_lsn = 1000
        self.watermarks = [0] * 4
        self.lost: list[tuple[int, int]] = []
        self.snapshot_id = 7000
        self.duplicates = 0
        self.options: list[dict[str, Any]] = []
        self.message_sizes: list[int] = []
        self.taken = 0
        """Messages of which everything that follows from them has been done."""
        self.sessions: list[LiveSession] = []
        self.refuse: Callable[[pa.RecordBatch], HeadraceError | None] = lambda batch: None
        self.refuse_open: list[HeadraceError] = []
        self.on_message: Callable[[str, LiveSession], None] = lambda point, session: None
        """Called at the points 'received', 'logged' and 'acknowledged' of each message; may raise Break."""
        self.is_mute = False
        self.end_after = 0
        """Ends a stream cleanly after so many messages."""
        self.stopping = threading.Event()
        self.proxy = Proxy(self.port)
        self.actions: list[tuple[str, Any]] = []
        self.answers: dict[str, Any] = {"health": {"status": "ok"}}
        self.read_failure: HeadraceError | None = None

    @property
    def url(self) -> str:
        return f"grpc://127.0.0.1:{self.proxy.port}"

    # What a test does

    def rows(self, collection: str = "default") -> list[dict[str, Any]]:
        with self.lock:
            return [row for logged in self.log for row in logged.rows]

    def reach(self, tier: Tier, lsn: int | None = None) -> None:
        """A watermark rises, for all that is logged if it is not said to where, and is announced."""
        with self.lock:
            top = self.log[-1].lsn if self.log else 0
            self.watermarks[tier] = max(self.watermarks[tier], top if lsn is None else lsn)
            if tier is Tier.COMMITTED:
                self.snapshot_id += 1
            for session in self.sessions:
                self._announce(session, tier)

    def crash(self) -> None:
        """What was only in memory is gone, and so are the connections."""
        with self.lock:
            safe = self.watermarks[Tier.LOCAL_DISK]
            self._lose([logged for logged in self.log if logged.lsn > safe])

    def lose_disk(self) -> None:
        with self.lock:
            safe = self.watermarks[Tier.OBJECT_STORAGE]
            self._lose([logged for logged in self.log if logged.lsn > safe])
            self.watermarks[Tier.LOCAL_DISK] = safe

    def _lose(self, gone: list[Logged]) -> None:
        self.log = [logged for logged in self.log if logged not in gone]
        if gone:
            self.lost.append((gone[0].lsn, self.next_lsn + 99))
            self.next_lsn += 100
        self.watermarks[Tier.MEMORY] = self.watermarks[Tier.LOCAL_DISK]
        self.break_streams()

    def forget_committed(self) -> None:
        """Remembers of each producer only how far it was."""
        with self.lock:
            for logged in self.log:
                if logged.lsn <= self.watermarks[Tier.COMMITTED]:
                    self.forgotten[logged.producer] = logged.seq

    def forget_producers(self) -> None:
        """Commits everything, and knows of nobody any more."""
        with self.lock:
            self.watermarks = [self.next_lsn - 1] * 4
            self.forgotten_lsn = self.next_lsn - 1
            for logged in self.log:
                logged.producer = ""
            self.break_streams()

    def break_streams(self) -> None:
        with self.lock:
            for session in self.sessions:
                session.is_broken = True
            self.proxy.cut()

    def throttle(self, reason: str | None) -> None:
        for session in self.sessions:
            self._say(session, {"throttled": reason})

    def kill(self) -> None:
        """Ends like a process: the port is free when this returns."""
        self.stopping.set()
        self.break_streams()
        self.proxy.close()
        self.shutdown()

    # The protocol

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        path = [part.decode() for part in descriptor.path]
        session = LiveSession("", path[1] if len(path) > 1 else "default", writer)
        if self.refuse_open:
            raise as_flight_error(self.refuse_open.pop(0))
        try:
            self._exchange(context, session, reader)
        except Break as broken:
            raise flight.FlightUnavailableError(str(broken)) from None
        except (flight.FlightError, pa.ArrowException, OSError):
            return  # the connection is gone
        except HeadraceError as error:
            raise as_flight_error(error) from None
        finally:
            with self.lock:
                if session in self.sessions:
                    self.sessions.remove(session)

    def _exchange(self, context: Any, session: LiveSession, reader: Any) -> None:
        # On this thread: a handler that returns while another thread reads takes the process with it.
        while True:
            try:
                chunk = reader.read_chunk()
            except StopIteration:
                break
            self._take(session, chunk)
            if session.messages and session.messages == self.end_after:
                return
        while session.announced[Tier.COMMITTED] < session.last_lsn and not session.is_broken:
            if context.is_cancelled() or self.stopping.wait(POLL_SECONDS):
                return

    def _take(self, session: LiveSession, chunk: Any) -> None:
        said = json.loads(chunk.app_metadata.to_pybytes()) if chunk.app_metadata is not None else {}
        if "producer" in said:
            self._open(session, said)
            self._reach_auto()
        if chunk.data is None:
            return
        session.messages += 1
        self.on_message("received", session)
        if (error := self.refuse(chunk.data)) is not None:
            raise error
        assigned = self._log(session, chunk.data, said)
        self.on_message("logged", session)
        if not self.is_mute:
            self._announce(session, Tier.MEMORY, {"assigned": assigned})
        self.on_message("acknowledged", session)
        self._reach_auto()
        with self.lock:
            self.taken += 1

    def _reach_auto(self) -> None:
        if self.auto is not None:
            for tier in Tier:
                if Tier.MEMORY < tier <= self.auto:
                    self.reach(tier)

    def _open(self, session: LiveSession, said: dict[str, Any]) -> None:
        with self.lock:
            self.options.append(said)
            session.producer = said["producer"]
            for other in self.sessions:
                if other.producer == session.producer and other.collection == session.collection:
                    other.is_fenced = True
            self.sessions.append(session)
            mine = [logged for logged in self.log if logged.producer == session.producer]
            known = [logged for logged in mine if logged.seq > self.forgotten.get(session.producer, 0)]
            after = said.get("resume_after", 0)
            session.last_lsn = mine[-1].lsn if mine else 0
            session.first_seq = None if mine else said.get("first_seq", 1)
            session.writer.begin(ACKS)
            told = {
                "collection": session.collection,
                "last_seq": mine[-1].seq if mine else None,
                "forgotten_lsn": self.forgotten_lsn,
                "unsure_until": self.unsure_until,
                "assigned": [[logged.seq, logged.lsn, 1] for logged in known if logged.lsn > after],
                "lost": [list(lost) for lost in self.lost if lost[1] > after],
                "watermarks": {tier.name: self.watermarks[tier] for tier in Tier},
            }
            self._say(session, {"session": told})
            for tier in Tier:
                self._announce(session, tier)

    def _log(self, session: LiveSession, batch: pa.RecordBatch, said: dict[str, Any]) -> list[list[int]]:
        rows, seq, start = said.get("rows", [batch.num_rows]), said["seq"], 0
        assert sum(rows) == batch.num_rows
        with self.lock:
            if session.is_broken:
                raise Break("the stream is broken")
            if session.is_fenced:
                raise Fenced("another stream of this producer took over")
            if session.first_seq is not None and seq > session.first_seq:
                raise UnknownProducer(f"the server does not know {session.producer}")
            session.first_seq = None
            known = {logged.seq: logged.lsn for logged in self.log if logged.producer == session.producer}
            last = max(known, default=0)
            assigned = []
            for number, count in enumerate(rows, seq):
                if number <= last:
                    self.duplicates += 1
                    assigned.append([number, known.get(number, 0), 1])
                else:
                    data = batch.slice(start, count).to_pylist()
                    self.log.append(Logged(session.producer, number, self.next_lsn, data))
                    assigned.append([number, self.next_lsn, 1])
                    session.last_lsn = self.next_lsn
                    self.next_lsn += 1
                start += count
            self.message_sizes.append(len(rows))
            self.watermarks[Tier.MEMORY] = max(self.watermarks[Tier.MEMORY], session.last_lsn)
            return assigned

    def _announce(self, session: LiveSession, tier: Tier, said: dict[str, Any] | None = None) -> None:
        with self.lock:
            lsn = min(self.watermarks[tier], session.last_lsn)
            if said is None and lsn <= session.announced[tier]:
                return
            session.announced[tier] = lsn
            if tier is Tier.COMMITTED:
                said = {"snapshot_id": self.snapshot_id}
        row = {"lsn": lsn, "durability_level": tier.name, "is_durability_update": tier is not Tier.MEMORY}
        batch = pa.RecordBatch.from_pylist([row], schema=ACKS)
        with session.lock:
            try:
                if said is None:
                    session.writer.write_batch(batch)
                else:
                    session.writer.write_with_metadata(batch, json.dumps(said).encode())
            except (flight.FlightError, pa.ArrowException, OSError):
                session.is_broken = True

    def _say(self, session: LiveSession, said: dict[str, Any]) -> None:
        with session.lock:
            session.writer.write_metadata(json.dumps(said).encode())

    # The other calls

    def do_action(self, context: Any, action: Any) -> list[bytes]:
        body = action.body.to_pybytes()
        self.actions.append((action.type, json.loads(body) if body else None))
        answer = self.answers.get(action.type)
        if isinstance(answer, HeadraceError):
            raise as_flight_error(answer)
        return [json.dumps(answer or {}).encode()]

    def do_get(self, context: Any, ticket: Any) -> Any:
        self.actions.append(("do_get", json.loads(ticket.ticket)))
        schema = pa.schema([("a", pa.int64())])

        def batches() -> Iterator[pa.RecordBatch]:
            yield pa.RecordBatch.from_pylist([{"a": 1}], schema=schema)
            if self.read_failure is not None:
                raise as_flight_error(self.read_failure)

        return flight.GeneratorStream(schema, batches())


def break_at_random(server: ScriptedServer, chances: random.Random, times: int) -> None:
    """Breaks streams at random points of random messages, so many times, and each third time loses memory."""
    left = [times]

    def maybe(point: str, session: LiveSession) -> None:
        if left[0] and chances.random() < 0.2:
            left[0] -= 1
            if left[0] % 3 == 0:
                server.crash()
            raise Break(point)

    server.on_message = maybe


UNAVAILABLE = ServerUnavailable("the server is shutting down")
