"""Segment files: their names, and reading one with its checks."""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from headrace.errors import Terminal
from headrace.wal.position import SegmentMark
from headrace.wal.records import (
    FRAME_MARK,
    SEGMENT_HEADER_BYTES,
    BadRecord,
    Kind,
    Mark,
    Record,
    SegmentHeader,
    UnknownKind,
    decode_body,
    decode_frame,
)

_NAME = re.compile(r"(\d{20})\.wal")


class CorruptLog(Terminal):
    """Something that was synced to the log is no longer there as it was written."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment file that is not written any more."""

    path: Path
    header: SegmentHeader
    length: int
    """The bytes that count."""
    last_lsn: int
    """The highest LSN in it; one less than `header.first_lsn` if it has no writes."""
    last_lsns: Mapping[str, int]
    """The highest LSN of each collection that it has writes of."""
    first_accepted_us: int | None
    """When the first write of it was accepted."""
    has_state: bool
    """Whether it begins with the log's whole state, so that nothing before it is needed to know that."""
    source: SegmentMark | None = None
    """For a segment of a side log: the last segment of the log that it was copied from."""

    @property
    def mark(self) -> SegmentMark:
        """Returns which segment of the log a table records that has its writes."""
        return self.source or SegmentMark(self.header.number, self.header.nonce, self.length)


def segment_name(number: int) -> str:
    return f"{number:020}.wal"


def segment_files(folder: Path) -> list[Path]:
    """The segment files of a folder in the order of their numbers."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def number_of(path: Path) -> int:
    return int(path.name.removesuffix(".wal"))


def load_segment(path: Path, most: int = -1) -> memoryview:
    """Reads a segment's bytes, or so many of them, into memory: a process that has mapped a file is ended by
    whoever cuts it off, and by a disk that fails."""
    with path.open("rb") as file:
        return _read(file, path, most)


class HeldSegment:
    """A segment that can be loaded though its file is removed meanwhile."""

    _file: BinaryIO | None = None

    def __init__(self, path: Path, length: int) -> None:
        self._path, self._length = path, length
        self._file = path.open("rb")

    def load(self) -> memoryview:
        """Returns the bytes that count, once; the file is let go."""
        assert self._file is not None
        with self._file as file:
            data = _read(file, self._path, self._length)
        if len(data) < self._length:
            raise CorruptLog(f"{self._path} has {len(data)} bytes, and {self._length} had been synced")
        return data

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()


def _read(file: BinaryIO, path: Path, most: int) -> memoryview:
    try:
        return memoryview(file.read(most))
    except OSError as error:
        raise CorruptLog(
            f"{path} cannot be read ({error.strerror}): restore it from a copy, or move the data folder away "
            "to recover what reached object storage"
        ) from None


def map_segment(path: Path) -> memoryview:
    """Returns a segment's bytes without reading them; a process that has no log of its own may."""
    with path.open("rb") as file:
        try:
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        except ValueError:  # an empty file cannot be mapped
            return memoryview(b"")


def records_of(data: memoryview) -> Iterator[tuple[int, Kind, Record]]:
    """Each record with the offset where it ends; raises BadRecord at one that is not whole."""
    offset = SEGMENT_HEADER_BYTES
    while offset < len(data):
        kind, body, offset = decode_frame(data, offset)
        yield offset, kind, decode_body(kind, body)


def whole_length(data: memoryview) -> int:
    """Where the last whole record of a segment ends that may have been torn by a crash.

    A tear is what was being written and never synced. If a later record says that the damaged place had been
    synced, it is no tear but damage, and going on would lose writes that were acknowledged.
    """
    offset = SEGMENT_HEADER_BYTES
    try:
        for end, _, _ in records_of(data):
            offset = end
    except BadRecord as torn:
        refuse_damage(data, torn.offset)
        return torn.offset
    return offset


def refuse_damage(data: memoryview, torn: int) -> None:
    """Raises if what is not whole at an offset had been synced."""
    is_own = _recognition(data)
    rest = bytes(data[torn:])
    at = rest.find(FRAME_MARK, 1)
    while at >= 0:
        mark = _mark_at(data, torn + at)
        # It stands where it says that everything before it is synced. Any other came with a client's data.
        if mark is not None and mark.durable == torn + at and is_own(mark):
            raise CorruptLog(
                f"the log is damaged at offset {torn}, which had been synced: restore the file from a copy, "
                "or move the data folder away to recover what reached object storage"
            )
        at = rest.find(FRAME_MARK, at + 1)


def _mark_at(data: memoryview, offset: int) -> Mark | None:
    try:
        kind, body, _ = decode_frame(data, offset)
        record = decode_body(kind, body) if kind is Kind.MARK else None
    except (BadRecord, UnknownKind, struct.error):
        return None
    return record if isinstance(record, Mark) else None


def _recognition(data: memoryview) -> Callable[[Mark], bool]:
    """Returns how to tell a segment's marks from what a client sends: by the nonce, which no client knows.

    Without a whole header nothing of a client's is in the segment, since that is synced first. Segments of
    version 1 have nothing to tell them by.
    """
    try:
        header = SegmentHeader.decode(data[:SEGMENT_HEADER_BYTES])
    except BadRecord:
        return lambda _: True
    return lambda mark: mark.nonce == (header.nonce if header.version > 1 else None)
