"""Turns what waits to be written into records: neighbours of one stream become one record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Event

import pyarrow as pa

from headrace.wal.records import Kind, SchemaRecord, Writes, frame, frame_schema, frame_writes
from headrace.wal.state import CollectionState

# A record's length has 32 bits, and what is read back as one piece is held in memory as one.
_MOST_BYTES_OF_A_RECORD = 32 << 20
_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True, eq=False)
class WriteStream:
    """What all writes of one stream have in common. Compared by identity."""

    collection: str
    schema: bytes
    """As an Arrow IPC message."""
    producer: str = ""


class Entry:
    """A message that waits for the log: one write, or several coalesced by the client or by us."""

    __slots__ = ("accepted_us", "count", "lsn", "message", "messages", "rows", "seq", "stream")

    def __init__(
        self,
        stream: WriteStream,
        message: pa.Buffer,
        count: int,
        rows: Sequence[int] | None,
        seq: int,
        accepted_us: int,
        messages: int = 1,
    ) -> None:
        self.stream = stream
        self.message = message
        self.count = count
        self.rows = rows
        self.seq = seq
        self.accepted_us = accepted_us
        self.messages = messages
        self.lsn = 0


@dataclass(slots=True)
class Declaration:
    """A collection that waits for the log."""

    collection: CollectionState
    encoded: bytes
    done: Event


Waiting = Entry | Declaration
Said = CollectionState | tuple[str, Writes]


class SegmentEncoder:
    """Knows which schemas a segment has already named."""

    def __init__(self) -> None:
        self._schemas: dict[tuple[str, bytes], int] = {}

    def encode(self, group: Iterable[Waiting]) -> tuple[list[bytes | pa.Buffer], list[Said]]:
        """The records of a group in pieces, and what they say, for the log's state."""
        parts: list[bytes | pa.Buffer] = []
        said: list[Said] = []
        for run in _runs(group):
            if isinstance(run, Declaration):
                parts.append(frame(Kind.COLLECTION, run.encoded))
                said.append(run.collection)
                continue
            first, stream = run[0], run[0].stream
            schema_id = self._schema_id(stream, parts)
            rows = None if first.rows is None else [n for entry in run for n in entry.rows or ()]
            count = sum(entry.count for entry in run)
            numbers = (first.lsn, first.seq, first.accepted_us, count, schema_id)
            parts += frame_writes(*numbers, stream.producer, rows, [entry.message for entry in run])
            said.append((stream.collection, Writes(*numbers, len(run), stream.producer, None, _NOTHING)))
        return parts, said

    def _schema_id(self, stream: WriteStream, parts: list[bytes | pa.Buffer]) -> int:
        named = (stream.collection, stream.schema)
        schema_id = self._schemas.get(named)
        if schema_id is None:
            schema_id = self._schemas[named] = len(self._schemas)
            parts.append(frame_schema(SchemaRecord(schema_id, *named)))
        return schema_id


def _runs(group: Iterable[Waiting]) -> Iterator[list[Entry] | Declaration]:
    """Neighbours that can be one record. Order is kept, so that a tear loses the last LSNs and no others."""
    run: list[Entry] = []
    size = next_seq = 0
    for waiting in group:
        if isinstance(waiting, Declaration):
            if run:
                yield run
                run = []
            yield waiting
            continue
        if run and (
            waiting.stream is not run[0].stream
            or (waiting.rows is None) != (run[0].rows is None)
            or (waiting.seq and waiting.seq != next_seq)
            or size + waiting.message.size > _MOST_BYTES_OF_A_RECORD
        ):
            yield run
            run = []
        if not run:
            size = 0
        run.append(waiting)
        size += waiting.message.size
        next_seq = waiting.seq + waiting.count
    if run:
        yield run
