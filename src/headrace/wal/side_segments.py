"""Copies the writes of one collection out of the log's segments, into a segment of the same format.

It has a header, the schemas and the writes, and nothing else: no marks, since it gets its name when it is
whole, and no state, which is the log's. Each write keeps its LSN, its sequence numbers and its bytes.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.wal.position import SegmentMark
from headrace.wal.records import (
    SEGMENT_HEADER_BYTES,
    BadRecord,
    Kind,
    SchemaRecord,
    SegmentHeader,
    Writes,
    decode_body,
    decode_frame,
    frame,
    frame_schema,
    with_schema_id,
)
from headrace.wal.segments import CorruptLog, Segment, load_segment, records_of

SIDE_NAME = r"\d{20}-[0-9a-f]{16}\.wal"


@dataclass(frozen=True, slots=True)
class SideSegment:
    """One segment of a side log, as the low-water mark records it."""

    source: SegmentMark
    """The last segment that it was copied from: a table with its writes is that far in the log."""
    nonce: int
    length: int
    first_lsn: int
    """No write of it has a lower one."""
    last_lsn: int

    @property
    def name(self) -> str:
        """Fits `SIDE_NAME`. No two have the same, whichever of them was ever recorded."""
        return f"{self.source.number:020}-{self.nonce:016x}.wal"

    def to_json(self) -> list[Any]:
        return [str(self.source), self.nonce, self.length, self.first_lsn, self.last_lsn]

    @staticmethod
    def from_json(raw: list[Any]) -> SideSegment:
        source, nonce, length, first_lsn, last_lsn = raw
        return SideSegment(SegmentMark.parse(source), int(nonce), int(length), int(first_lsn), int(last_lsn))


def copy_writes(
    sources: Iterable[Segment], collection: str, after: int, most_bytes: int, term: int
) -> tuple[SideSegment, bytes] | None:
    """Returns the writes above an LSN as a segment, of as many sources as fill it; None if there are none."""
    schemas: dict[bytes, int] = {}
    parts: list[bytes] = []
    size, first_lsn, last_lsn = SEGMENT_HEADER_BYTES, 0, after
    last: Segment | None = None
    for segment in sources:
        for record in _copies(segment, collection, after, schemas):
            parts.append(record)
            size += len(record)
        last_lsn = max(last_lsn, segment.last_lsns.get(collection, 0))
        first_lsn, last = first_lsn or max(segment.header.first_lsn, after + 1), segment
        if size >= most_bytes:
            break
    if last is None or last_lsn <= after:
        return None
    nonce = secrets.randbits(64)
    header = SegmentHeader(term, last.header.number, first_lsn, 0, last.length, nonce)
    data = b"".join([header.encode(), *parts])
    return SideSegment(last.mark, nonce, len(data), first_lsn, last_lsn), data


def _copies(segment: Segment, collection: str, after: int, schemas: dict[bytes, int]) -> Iterator[bytes]:
    """Yields the records of a collection with numbers for their schemas that hold in the copy."""
    data = load_segment(segment.path)[: segment.length]
    numbers: dict[int, int] = {}  # of schemas: here, and in the copy
    offset = SEGMENT_HEADER_BYTES
    while offset < len(data):
        kind, body, offset = decode_frame(data, offset)
        if kind not in (Kind.SCHEMA, Kind.WRITES):
            continue
        record = decode_body(kind, body)
        if isinstance(record, SchemaRecord) and record.collection == collection:
            if record.schema not in schemas:
                schemas[record.schema] = len(schemas)
                yield frame_schema(SchemaRecord(schemas[record.schema], collection, record.schema))
            numbers[record.schema_id] = schemas[record.schema]
        elif isinstance(record, Writes) and record.schema_id in numbers and record.last_lsn > after:
            yield frame(Kind.WRITES, with_schema_id(body, numbers[record.schema_id]))


def read_side_segment(
    path: Path, side: SideSegment, collection: str, on_writes: Callable[[str, Writes], None]
) -> Segment:
    """Checks all of it; raises `CorruptLog` if it is not as it was written, or `FileNotFoundError`."""
    data = load_segment(path)
    accepted_us: int | None = None
    try:
        header = SegmentHeader.decode(data)
        if (header.nonce, header.number, len(data)) != (side.nonce, side.source.number, side.length):
            raise CorruptLog(f"{path} is not the segment of this name: restore it from a copy")
        for _, _, record in records_of(data):
            if isinstance(record, Writes):
                accepted_us = accepted_us or record.accepted_us
                on_writes(collection, record)
    except BadRecord as damaged:
        raise CorruptLog(f"{path} is damaged at offset {damaged.offset}: {damaged.message}") from None
    last_lsns = {collection: side.last_lsn}
    return Segment(path, header, side.length, side.last_lsn, last_lsns, accepted_us, False, side.source)
