"""Logs to test with, and disks that misbehave."""

from __future__ import annotations

import errno
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headrace._native import AdmitQuestion, GreetQuestion, Port, SealedSegment
from headrace.ingest.disk_space import room_of
from headrace.ingest.engine_settings import EngineSettings, LogLimits
from headrace.ingest.log import FaultPoints, Log
from headrace.wal.records import Writes
from headrace.wal.recovery import Recovered, recover
from headrace.wal.segments import Segment, map_segment, records_of
from tests.ingest.flight_client import Stream
from tests.waiting import DEADLINE_SECONDS, wait_until

SCHEMA = pa.schema([pa.field("id", pa.int64())])
SCHEMA_MESSAGE: bytes = SCHEMA.serialize().to_pybytes()

NEVER_BY_ITSELF = LogLimits(segment_seconds=3600.0)
"""A segment is sealed only when a test asks for it."""


@dataclass
class Disk(FaultPoints):
    """Real files. Calls fail with the errors in a list, one a call; `hold` makes syncs wait."""

    write_errors: list[int] = field(default_factory=list)
    sync_errors: list[int] = field(default_factory=list)
    create_errors: list[int] = field(default_factory=list)
    syncs: int = 0
    holding: threading.Event = field(default_factory=threading.Event)
    """Set while a sync waits."""
    free_bytes: int | None = None
    """Of 1 TB; None: as it is."""

    def __post_init__(self) -> None:
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def reached(self, point: str) -> None:
        match point:
            case "wal creating":
                _raise_next(self.create_errors)
            case "wal writing":
                _raise_next(self.write_errors)
            case "wal syncing":
                if not self._open.is_set():
                    self.holding.set()
                    assert self._open.wait(DEADLINE_SECONDS)
                    self.holding.clear()
                _raise_next(self.sync_errors)
        super().reached(point)

    def synced(self, path: str, failed: bool) -> None:
        self.syncs += not failed

    def room(self, folder: Path) -> tuple[int, int]:
        return room_of(folder) if self.free_bytes is None else (self.free_bytes, 10**12)


def _raise_next(errors: list[int]) -> None:
    if errors:
        code = errors.pop(0)
        raise OSError(code, os.strerror(code))


NO_SPACE = errno.ENOSPC
BROKEN = errno.EIO


class OpenLog:
    """A log that was recovered from a folder and is being written, over a port that takes every schema."""

    def __init__(self, folder: Path, *, term: int = 0, limits: LogLimits = NEVER_BY_ITSELF) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.found: list[tuple[str, Writes]] = []
        self.recovered: Recovered = recover(folder, lambda name, writes: self.found.append((name, writes)))
        self.recovered.start_term(term)
        self.sealed: list[Segment] = []
        self.log = Log(folder, term, self.recovered, {}, EngineSettings(folder, log=limits))
        port = {"host": "127.0.0.1", "port": 0, "tls": None, "tokens": None, "others": folder / "none"}
        sizes = {"message_bytes": 64 << 20, "receive_bytes": 512 << 20, "connections": 100}
        self._port = Port(self.log.native, port | sizes)
        self._streams: dict[str, Stream] = {}
        self._closing = False
        self._control = threading.Thread(target=self._answer)
        self._control.start()

    def __enter__(self) -> OpenLog:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self._streams.values():
            stream.hang_up()
        self.log.close(DEADLINE_SECONDS)
        self._port.stop(DEADLINE_SECONDS)
        self._closing = True
        self._control.join()

    def synced_write(self, *ids: int, producer: str = "", seq: int = 0) -> int:
        """Returns the LSN, which is on the disk."""
        stream = self._streams.get(producer)
        if stream is None:
            stream = self._streams[producer] = Stream(f"grpc://127.0.0.1:{self._port.port}")
            if producer:
                stream.options(producer=producer, first_seq=seq)
        before = len(stream.lsns("LOCAL_DISK"))
        stream.send_ids(*ids, **({"seq": seq} if seq else {}))
        return stream.await_count("LOCAL_DISK", before + 1)[-1]

    def seal(self) -> Segment:
        """Ends the current segment, which has writes."""
        before = len(self.sealed)
        self.log.seal()
        wait_until(lambda: len(self.sealed) > before, "the end of a segment")
        return self.sealed[-1]

    def _answer(self) -> None:
        while not self._closing:
            match self.log.native.next_event(0.05):
                case SealedSegment() as sealed:
                    self.sealed.append(self.log.sealed(sealed))
                    self.log.native.uploaded(sealed.number, sealed.last_lsn)
                case AdmitQuestion() as question:
                    question.admit(question.schema, [])
                case GreetQuestion() as question:
                    question.greet(0, [], "{}")


def lsns_in(folder: Path) -> list[int]:
    """All LSNs that a recovery finds, in the order of the log."""
    found: list[int] = []
    recover(folder, lambda _, writes: found.extend(range(writes.first_lsn, writes.last_lsn + 1)))
    return found


def record_ends(path: Path) -> list[int]:
    return [end for end, _, _ in records_of(map_segment(path))]
