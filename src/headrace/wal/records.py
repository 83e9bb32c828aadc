"""The contents of a segment: a header, then records framed with length and checksum.

Everything is little-endian and every record starts at a multiple of eight bytes, so that the Arrow
messages in it can be read in place. docs/wal.md draws the format.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Self
from zlib import crc32

import numpy as np
import orjson

from headrace.errors import Terminal

MAGIC = b"HEADRWAL"
VERSION = 2
_VERSIONS = (1, 2)
ALIGNMENT = 8

_SEGMENT = struct.Struct("<8sIIQQQQQII")
SEGMENT_HEADER_BYTES = _SEGMENT.size

_FRAME_MAGIC = 0x57445248  # "HRDW"
_FRAME = struct.Struct("<IIIB3x")
_UNUSED_BYTES = 3  # of a frame, at its end
FRAME_BYTES = _FRAME.size
FRAME_MARK = struct.pack("<I", _FRAME_MAGIC)

_MARK = struct.Struct("<QQ")  # in a segment of version 1
_MARK_WITH_NONCE = struct.Struct("<QQQ")
_HALF = 32  # bits of a nonce; its upper half stands where a segment of version 1 has zeros
_SCHEMA = struct.Struct("<IHH")
_WRITES = struct.Struct("<QQQIIIHH")

_ONE_EACH = 1  # flag: every message is one write
_KIND_AND_LENGTH = struct.Struct("<IB")
_ROWS = np.dtype("<u4")


class Kind(IntEnum):
    MARK = 1
    STATE = 2
    SCHEMA = 3
    COLLECTION = 4
    WRITES = 5


_KINDS = frozenset(Kind)


class BadRecord(Terminal):
    """There is no complete record at this offset of a segment."""

    offset: int = 0


class UnknownKind(Terminal):
    """A segment has a whole record of a kind that only a later version writes."""


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    term: int
    number: int
    first_lsn: int
    """No write of this segment has a lower one."""
    reserved_until: int
    """LSNs below this may have been given away when the segment was begun."""
    previous_length: int
    """How many bytes of the segment before this one count; what follows them there was never synced."""
    nonce: int = 0
    """Tells it from a segment of the same number that a server with a copy of the data folder began, and its
    marks from whatever a client sends. It has 64 bits, and in version 1 it had 32; no client learns it."""
    version: int = VERSION

    def encode(self) -> bytes:
        fields = (self.term, self.number, self.first_lsn, self.reserved_until, self.previous_length)
        upper, lower = divmod(self.nonce, 1 << _HALF)
        bare = _SEGMENT.pack(MAGIC, self.version, upper, *fields, lower, 0)
        return bare[:-4] + struct.pack("<I", crc32(bare[:-4]))

    @classmethod
    def decode(cls, data: bytes | memoryview) -> Self:
        if len(data) < SEGMENT_HEADER_BYTES:
            raise BadRecord("the segment is shorter than its header", offset=0)
        magic, version, upper, term, number, first_lsn, reserved, previous, lower, checksum = (
            _SEGMENT.unpack_from(data)
        )
        if magic != MAGIC or checksum != crc32(data[: SEGMENT_HEADER_BYTES - 4]):
            raise BadRecord("the segment's header is damaged", offset=0)
        if version not in _VERSIONS:
            raise Terminal(
                f"the segment has format {version} and this program reads up to {VERSION}: use a newer "
                "Headrace"
            )
        nonce = (upper << _HALF) | lower
        return cls(term, number, first_lsn, reserved, previous, nonce, version)


@dataclass(frozen=True, slots=True)
class Mark:
    """Stands before each group of records that is synced together."""

    durable: int
    """Up to this offset the segment was known to be synced when the group was written."""
    reserved_until: int
    nonce: int | None = None
    """The segment's; None in a segment of version 1."""


@dataclass(frozen=True, slots=True)
class SchemaRecord:
    """A schema that writes of this segment refer to by number."""

    schema_id: int
    collection: str
    schema: bytes
    """As an Arrow IPC message."""


@dataclass(frozen=True, slots=True)
class Writes:
    """Consecutive writes of one stream: their LSNs, and their sequence numbers if it has a producer."""

    first_lsn: int
    first_seq: int
    accepted_us: int
    count: int
    schema_id: int
    messages: int
    producer: str
    rows: np.ndarray[Any, np.dtype[np.uint32]] | None
    """Rows of each write; None if each message is one."""
    payload: memoryview
    """The Arrow IPC messages, one after the other."""

    @property
    def last_lsn(self) -> int:
        return self.first_lsn + self.count - 1


Record = Mark | SchemaRecord | Writes | dict[str, Any]
"""A state or a collection is a JSON object."""


def padding(length: int) -> int:
    return -length % ALIGNMENT


def frame(kind: Kind, body: bytes) -> bytes:
    """A record as it stands in the file."""
    checksum = crc32(body, crc32(_KIND_AND_LENGTH.pack(len(body), kind)))
    return b"".join((_FRAME.pack(_FRAME_MAGIC, len(body), checksum, kind), body, bytes(padding(len(body)))))


def frame_schema(record: SchemaRecord) -> bytes:
    name = record.collection.encode()
    head = _SCHEMA.pack(record.schema_id, len(name), 0) + name
    return frame(Kind.SCHEMA, head + bytes(padding(len(head))) + record.schema)


def with_schema_id(writes: memoryview, schema_id: int) -> bytes:
    """Returns the body of a record of writes that refers to its schema by another number."""
    body = bytearray(writes)
    *numbers, _, messages, name_length, flags = _WRITES.unpack_from(body)
    _WRITES.pack_into(body, 0, *numbers, schema_id, messages, name_length, flags)
    return bytes(body)


def decode_frame(data: memoryview, offset: int) -> tuple[Kind, memoryview, int]:
    """The kind and body of the record at an offset, and where the next one starts."""
    if offset + FRAME_BYTES > len(data):
        raise BadRecord("the segment ends inside of a record's frame", offset=offset)
    magic, length, checksum, code = _FRAME.unpack_from(data, offset)
    start = offset + FRAME_BYTES
    body_end = start + length
    end = body_end + padding(length)
    if magic != _FRAME_MAGIC or end > len(data):
        raise BadRecord("there is no whole record", offset=offset)
    body = data[start:body_end]
    if crc32(body, crc32(_KIND_AND_LENGTH.pack(length, code))) != checksum:
        raise BadRecord("the record's checksum is wrong", offset=offset)
    if any(data[start - _UNUSED_BYTES : start]) or any(data[body_end:end]):
        raise BadRecord("there is something between records", offset=offset)
    if code not in _KINDS:
        raise UnknownKind(f"the segment has a record of kind {code}: use a newer Headrace")
    return Kind(code), body, end


def decode_body(kind: Kind, body: memoryview) -> Record:
    match kind:
        case Kind.MARK:
            layout = _MARK if len(body) == _MARK.size else _MARK_WITH_NONCE
            return Mark(*layout.unpack(body))
        case Kind.SCHEMA:
            return _decode_schema(body)
        case Kind.WRITES:
            return _decode_writes(body)
        case Kind.STATE | Kind.COLLECTION:
            content: dict[str, Any] = orjson.loads(body)
            return content


def _decode_schema(body: memoryview) -> SchemaRecord:
    schema_id, name_length, _ = _SCHEMA.unpack_from(body)
    end = _SCHEMA.size + name_length
    collection = bytes(body[_SCHEMA.size : end]).decode()
    return SchemaRecord(schema_id, collection, bytes(body[end + padding(end) :]))


def _decode_writes(body: memoryview) -> Writes:
    lsn, seq, accepted_us, count, schema_id, messages, name_length, flags = _WRITES.unpack_from(body)
    end = _WRITES.size + name_length
    producer = bytes(body[_WRITES.size : end]).decode()
    rows = None
    if not flags & _ONE_EACH:
        end += -end % _ROWS.itemsize
        rows = np.frombuffer(body, _ROWS, count, end)
        end += rows.nbytes
    end += padding(end)
    return Writes(lsn, seq, accepted_us, count, schema_id, messages, producer, rows, body[end:])
