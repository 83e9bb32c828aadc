"""Logs to test with, and disks that misbehave."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headrace.wal.files import Files
from headrace.wal.groups import Entry, WriteStream
from headrace.wal.records import Writes
from headrace.wal.recovery import Recovered, recover
from headrace.wal.segments import Segment, map_segment, records_of
from headrace.wal.writer import LogLimits, LogWriter
from tests.waiting import DEADLINE_SECONDS, wait_until

SCHEMA = pa.schema([pa.field("id", pa.int64())])
SCHEMA_MESSAGE: bytes = SCHEMA.serialize().to_pybytes()
STREAM = WriteStream("orders", SCHEMA_MESSAGE)

NEVER_BY_ITSELF = LogLimits(segment_seconds=3600.0)
"""A segment is sealed only when a test asks for it."""


def message(*ids: int) -> pa.Buffer:
    return pa.record_batch([pa.array(ids, pa.int64())], schema=SCHEMA).serialize()


def entry(*ids: int, stream: WriteStream = STREAM, rows: Sequence[int] | None = None, seq: int = 0) -> Entry:
    count = 1 if rows is None else len(rows)
    return Entry(stream, message(*ids), count, rows, seq, accepted_us=1_000)


@dataclass
class Disk(Files):
    """Real files. Calls fail with the errors in a list, one a call; `hold` makes syncs wait."""

    write_errors: list[int] = field(default_factory=list)
    bytes_before_error: int = 0
    sync_errors: list[int] = field(default_factory=list)
    create_errors: list[int] = field(default_factory=list)
    close_errors: list[int] = field(default_factory=list)
    synced: dict[str, int] = field(default_factory=dict)
    """How much of each file the last sync covered."""
    syncs: int = 0
    holding: threading.Event = field(default_factory=threading.Event)
    """Set while a sync waits."""
    free_bytes: int | None = None
    """Of 1 TB; None: as it is."""

    def __post_init__(self) -> None:
        self._names: dict[int, str] = {}
        self._open = threading.Event()
        self._open.set()

    def hold(self) -> None:
        self._open.clear()

    def let_go(self) -> None:
        self._open.set()

    def create(self, path: Path) -> int:
        _raise_next(self.create_errors)
        descriptor = super().create(path)
        self._names[descriptor] = path.name
        self.synced[path.name] = 0
        return descriptor

    def write(self, descriptor: int, data: bytes) -> None:
        if self.write_errors:
            super().write(descriptor, data[: self.bytes_before_error])
        _raise_next(self.write_errors)
        super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        size = os.fstat(descriptor).st_size
        if not self._open.is_set():
            self.holding.set()
            assert self._open.wait(DEADLINE_SECONDS)
            self.holding.clear()
        _raise_next(self.sync_errors)
        super().sync(descriptor)
        self.syncs += 1
        self.synced[self._names[descriptor]] = size

    def room(self, folder: Path) -> tuple[int, int]:
        return super().room(folder) if self.free_bytes is None else (self.free_bytes, 10**12)

    def close(self, descriptor: int) -> None:
        super().close(descriptor)
        _raise_next(self.close_errors)

    def copy_to(self, source: Path, target: Path, *, unsynced: bool) -> None:
        """What a machine finds after it stopped now, with or without what was not synced."""
        target.mkdir()
        for path in source.iterdir():
            data = path.read_bytes()
            kept = data if unsynced else data[: self.synced.get(path.name, len(data))]
            (target / path.name).write_bytes(kept)


def _raise_next(errors: list[int]) -> None:
    if errors:
        code = errors.pop(0)
        raise OSError(code, os.strerror(code))


NO_SPACE = errno.ENOSPC
BROKEN = errno.EIO


class OpenLog:
    """A log that was recovered from a folder and is being written."""

    def __init__(
        self,
        folder: Path,
        *,
        term: int = 0,
        files: Files | None = None,
        limits: LogLimits = NEVER_BY_ITSELF,
        may_seal: Callable[[], bool] = lambda: True,
        clock: Callable[[], float] = lambda: 1.0,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.found: list[tuple[str, Writes]] = []
        self.recovered: Recovered = recover(folder, lambda name, writes: self.found.append((name, writes)))
        self.recovered.start_term(term)
        self.durable: list[int] = []
        self.sealed: list[Segment] = []
        self.reasons: list[str | None] = []
        segments = self.recovered.segments
        self.writer = LogWriter(
            folder,
            term,
            self.recovered.next_number,
            self.recovered.state,
            segments[-1] if segments else None,
            on_durable=self.durable.append,
            on_sealed=self.sealed.append,
            on_failing=self.reasons.append,
            may_seal=may_seal,
            limits=limits,
            files=files,
            clock=clock,
        )
        self.writer.start()

    def __enter__(self) -> OpenLog:
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close(DEADLINE_SECONDS)

    def write(self, *ids: int, stream: WriteStream = STREAM, seq: int = 0) -> int:
        return self.writer.append(entry(*ids, stream=stream, seq=seq))

    def synced_write(self, *ids: int, stream: WriteStream = STREAM, seq: int = 0) -> int:
        lsn = self.write(*ids, stream=stream, seq=seq)
        self.await_durable(lsn)
        return lsn

    def await_durable(self, lsn: int) -> None:
        wait_until(lambda: self.durable and self.durable[-1] >= lsn, f"LSN {lsn} on the disk")

    def seal(self) -> Segment:
        """Ends the current segment, which has writes."""
        before = len(self.sealed)
        self.writer.seal()
        wait_until(lambda: len(self.sealed) > before, "the end of a segment")
        return self.sealed[-1]


def lsns_in(folder: Path) -> list[int]:
    """All LSNs that a recovery finds, in the order of the log."""
    found: list[int] = []
    recover(folder, lambda _, writes: found.extend(range(writes.first_lsn, writes.last_lsn + 1)))
    return found


def record_ends(path: Path) -> list[int]:
    return [end for end, _, _ in records_of(map_segment(path))]
