"""Segments of a write-ahead log, without the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from headrace.ingest.iceberg import SegmentPart
from headrace.wal.records import Mark, SchemaRecord, SegmentHeader, frame_schema
from headrace.wal.segments import segment_name
from tests.wal.frames import frame_mark, frame_writes


@dataclass
class SegmentBuilder:
    """Collects writes; LSNs go on from one write to the next."""

    next_lsn: int = 1
    number: int = 1
    _parts: list[bytes] = field(default_factory=list)
    _schemas: dict[tuple[str, bytes], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        header = SegmentHeader(0, self.number, self.next_lsn, self.next_lsn, 0)
        self._parts = [header.encode(), frame_mark(Mark(0, self.next_lsn))]

    def write(self, collection: str, *batches: pa.RecordBatch) -> range:
        """One write each; their LSNs."""
        return self._write(collection, batches, len(batches), None)

    def write_coalesced(self, collection: str, batch: pa.RecordBatch, rows: Sequence[int]) -> range:
        """As many writes as `rows` has numbers, in one batch; their LSNs."""
        return self._write(collection, (batch,), len(rows), rows)

    def skip(self, count: int) -> None:
        self.next_lsn += count

    def save(self, folder: Path) -> SegmentPart:
        """The segment as a file, and a builder no more."""
        path = folder / segment_name(self.number)
        path.write_bytes(self.data())
        return SegmentPart(path, path.stat().st_size)

    def data(self) -> bytes:
        return b"".join(self._parts)

    def following(self) -> SegmentBuilder:
        return SegmentBuilder(self.next_lsn, self.number + 1)

    def _write(
        self, collection: str, batches: Sequence[pa.RecordBatch], count: int, rows: Sequence[int] | None
    ) -> range:
        schema = batches[0].schema.serialize().to_pybytes()
        known = len(self._schemas)
        schema_id = self._schemas.setdefault((collection, schema), known)
        if schema_id == known:
            self._parts.append(frame_schema(SchemaRecord(schema_id, collection, schema)))
        lsns = range(self.next_lsn, self.next_lsn + count)
        messages = [batch.serialize().to_pybytes() for batch in batches]
        self._parts.append(frame_writes(lsns.start, 0, 0, count, schema_id, "", rows, messages))
        self.next_lsn += count
        return lsns
