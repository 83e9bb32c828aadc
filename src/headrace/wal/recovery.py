"""Reads a folder of segments, whatever happened to the process that wrote it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from headrace.model.lsn import first_lsn_of
from headrace.wal.records import (
    SEGMENT_HEADER_BYTES,
    BadRecord,
    Kind,
    Mark,
    SchemaRecord,
    SegmentHeader,
    Writes,
)
from headrace.wal.segments import (
    CorruptLog,
    Segment,
    load_segment,
    number_of,
    records_of,
    refuse_damage,
    segment_files,
    whole_length,
)
from headrace.wal.state import CollectionState, LogState, Range

log = logging.getLogger(__name__)

OnWrites = Callable[[str, Writes], None]


@dataclass
class Recovered:
    """A log as it was found: whole segments, and the state after the last of them."""

    segments: list[Segment] = field(default_factory=list)
    state: LogState = field(default_factory=LogState)
    first_number: int = 1
    """What the first segment is called, if there is none."""
    missing: list[Range] = field(default_factory=list)
    """What segments held that are absent because a person has given them up. All of it is lost."""

    def lose(self, first: int, last: int) -> None:
        """Records that the writes of missing segments are lost."""
        self.missing.append((first, last))
        self.state.lose(first, last)

    @property
    def next_number(self) -> int:
        return self.segments[-1].header.number + 1 if self.segments else self.first_number

    def start_term(self, term: int) -> None:
        """Goes on in a term, the one of before or another: what was given away beyond the log is lost.

        That is what was set aside in this term, and all of an earlier one, whose end this log may lack.
        """
        first = self.state.last_lsn + 1
        next_lsn = max(first_lsn_of(term), self.state.reserved_until, first)
        lost = self.state.lost
        if lost and lost[-1][1] >= first:  # nothing was written since the last time
            first, _ = lost.pop()
        if first < next_lsn:
            lost.append((first, next_lsn - 1))
        self.state.reserved_until = next_lsn
        if not self.segments and self.first_number > 1:
            # Everything was given up, and with it who had written.
            self.state.forgotten_lsn = next_lsn - 1


def recover(
    folder: Path, on_writes: OnWrites = lambda _, __: None, given_up: Collection[int] = ()
) -> Recovered:
    """Reads every segment, checks all of it, and syncs the last, which a crash may have left unsynced.

    The last segment is cut at the first record that is not whole. Anything else that is not as it was written
    is an error: it had been acknowledged. Segments that are given up may be absent, and are lost.
    """
    files = _without_a_stillborn_last(segment_files(folder))
    headers = [_header_of(path) for path in files]
    _refuse_gaps(headers, given_up)
    recovered = Recovered()
    gaps: list[Range] = []
    lacks_state: Path | None = None  # the segment after a gap, until there is a state after it
    for position, (path, header) in enumerate(zip(files, headers, strict=True)):
        data = load_segment(path)
        if position + 1 < len(files) and headers[position + 1].number == header.number + 1:
            length = headers[position + 1].previous_length
        else:
            length = whole_length(data)
            if length < len(data):
                log.warning("cut %d torn bytes off the end of %s", len(data) - length, path.name)
            _sync(path)
        if header.number != (headers[position - 1].number if position else 0) + 1:
            lacks_state = path
            if position and recovered.state.last_lsn + 1 < header.first_lsn:
                gaps.append((recovered.state.last_lsn + 1, header.first_lsn - 1))
        segment = read_segment(path, header, data, length, recovered, on_writes)
        recovered.segments.append(segment)
        if segment.has_state:
            lacks_state = None
    # The next state in the log replaces segments that are missing at the front or were given up. Without one,
    # something removed segments that were needed.
    if lacks_state is not None:
        raise CorruptLog(
            f"the log has {lacks_state.name}, which needs the ones before it: "
            "restore them from a copy, or move the data folder away to recover from object storage"
        )
    for first, last in gaps:  # only now: a state may have come after a gap, and has replaced the one before
        recovered.lose(first, last)
    return recovered


def read_segment(
    path: Path,
    header: SegmentHeader,
    data: memoryview,
    length: int,
    into: Recovered,
    on_writes: OnWrites = lambda _, __: None,
) -> Segment:
    """Folds one whole segment into a state; damage anywhere in it is an error."""
    if length > len(data):
        raise CorruptLog(f"{path} has {len(data)} bytes, but {length} had been synced")
    into.state.reserved_until = max(into.state.reserved_until, header.reserved_until)
    collections: dict[int, str] = {}
    last_lsns: dict[str, int] = {}
    first_accepted_us: int | None = None
    has_state = False
    try:
        for _, kind, record in records_of(data[:length]):
            match record:
                case Mark(reserved_until=reserved_until):
                    into.state.reserved_until = max(into.state.reserved_until, reserved_until)
                case SchemaRecord():
                    collections[record.schema_id] = record.collection
                case Writes():
                    collection = collections[record.schema_id]
                    into.state.wrote(collection, record)
                    on_writes(collection, record)
                    last_lsns[collection] = record.last_lsn
                    first_accepted_us = first_accepted_us or record.accepted_us
                case dict() if kind is Kind.STATE:
                    reserved_until = into.state.reserved_until
                    into.state = LogState.from_json(record)
                    into.state.reserved_until = max(into.state.reserved_until, reserved_until)
                    has_state = True
                case dict():
                    into.state.declared(CollectionState.from_json(record))
    except BadRecord as damaged:
        raise CorruptLog(f"{path} is damaged at offset {damaged.offset}: {damaged.message}") from None
    last_lsn = max(last_lsns.values(), default=header.first_lsn - 1)
    return Segment(path, header, length, last_lsn, last_lsns, first_accepted_us, has_state)


def _header_of(path: Path) -> SegmentHeader:
    try:
        header = SegmentHeader.decode(load_segment(path, SEGMENT_HEADER_BYTES))
    except BadRecord as damaged:
        raise CorruptLog(f"{path}: {damaged.message}") from None
    if header.number != number_of(path):
        raise CorruptLog(f"{path} holds segment {header.number}: its file was renamed")
    return header


def _refuse_gaps(headers: list[SegmentHeader], given_up: Collection[int]) -> None:
    for before, after in pairwise(headers):
        if not set(range(before.number + 1, after.number)) <= set(given_up):
            raise CorruptLog(
                f"the log has no segment {before.number + 1}, though it has {after.number}: "
                "restore the file from a copy, or move the data folder away to recover from object storage"
            )


def _without_a_stillborn_last(files: list[Path]) -> list[Path]:
    """A crash while a segment is begun leaves a file without a whole header, and nothing in it."""
    if files:
        data = load_segment(files[-1])
        try:
            SegmentHeader.decode(data[:SEGMENT_HEADER_BYTES])
        except BadRecord:
            refuse_damage(data, 0)
            log.warning("removed %s, which had just been begun", files[-1].name)
            files[-1].unlink()
            return files[:-1]
    return files


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
