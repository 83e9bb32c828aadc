"""The format of segments: what is written is read, and damage is noticed."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import Terminal
from headrace.wal.records import (
    SEGMENT_HEADER_BYTES,
    BadRecord,
    Kind,
    Mark,
    Record,
    SchemaRecord,
    SegmentHeader,
    Writes,
    frame,
    frame_schema,
)
from headrace.wal.segments import records_of
from tests.wal.frames import frame_mark, frame_writes

VERSIONS = (1, 2)
GOLDEN = {version: Path(__file__).parent / f"golden/segment-{version}.wal" for version in VERSIONS}
NONCES = {1: 77, 2: 0x0123_4567_89AB_CDEF}


def header_of(version: int) -> SegmentHeader:
    return SegmentHeader(
        term=3,
        number=42,
        first_lsn=1_001,
        reserved_until=70_000,
        previous_length=4_096,
        nonce=NONCES[version],
        version=version,
    )


def mark_of(version: int) -> Mark:
    return Mark(durable=200, reserved_until=1_118_576, nonce=NONCES[2] if version > 1 else None)


HEADER = header_of(2)
STATE = {"last_lsn": 1_000, "reserved_until": 70_000, "producers": [["orders", "till-1", 7, 1_000, 5]]}
SCHEMA = SchemaRecord(0, "orders", b"a schema")
COLLECTION = {"name": "orders", "schema": "", "key": ["/id"], "json_schema": None}
MESSAGES = [b"first message", b"second"]

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)


def golden_segment(version: int = 2) -> bytes:
    """Every kind of record, one of them with padding inside and after its body."""
    return b"".join(
        [
            header_of(version).encode(),
            frame(Kind.STATE, orjson.dumps(STATE)),
            frame_mark(mark_of(version)),
            frame_schema(SCHEMA),
            frame(Kind.COLLECTION, orjson.dumps(COLLECTION)),
            frame_writes(1_001, 8, 1_700_000_000_000_000, 3, 0, "till-1", [2, 1, 5], MESSAGES),
            frame_writes(1_004, 0, 1_700_000_000_000_001, 2, 0, "", None, MESSAGES),
        ]
    )


def read(data: bytes) -> list[tuple[Kind, Record]]:
    return [(kind, record) for _, kind, record in records_of(memoryview(data))]


def only(data: bytes) -> Record:
    [(_, record)] = read(HEADER.encode() + data)
    return record


@pytest.mark.parametrize("version", VERSIONS)
def test_the_bytes_of_a_segment_are_those_that_were_agreed_on(version: int) -> None:
    assert golden_segment(version) == GOLDEN[version].read_bytes()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_segment_says_what_was_written(version: int) -> None:
    data = GOLDEN[version].read_bytes()
    assert SegmentHeader.decode(data) == header_of(version)
    kinds, records = zip(*read(data), strict=True)
    assert list(kinds) == [Kind.STATE, Kind.MARK, Kind.SCHEMA, Kind.COLLECTION, Kind.WRITES, Kind.WRITES]
    state, mark, schema, collection, coalesced, single = records
    assert (state, mark, schema, collection) == (STATE, mark_of(version), SCHEMA, COLLECTION)
    assert isinstance(coalesced, Writes)
    assert coalesced.rows is not None
    assert coalesced.rows.tolist() == [2, 1, 5]
    assert (coalesced.first_lsn, coalesced.last_lsn, coalesced.first_seq) == (1_001, 1_003, 8)
    assert (coalesced.producer, coalesced.messages, bytes(coalesced.payload)) == (
        "till-1",
        2,
        b"".join(MESSAGES),
    )
    assert isinstance(single, Writes)
    assert (single.rows, single.producer, single.count, single.messages) == (None, "", 2, 2)


def test_every_record_starts_where_arrow_can_read_in_place() -> None:
    ends = [end for end, _, _ in records_of(memoryview(golden_segment()))]
    assert all(end % 8 == 0 for end in ends)
    assert SEGMENT_HEADER_BYTES % 8 == 0


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("flip", [0x01, 0x80, 0xFF])
def test_every_flipped_byte_is_noticed(flip: int, version: int) -> None:
    data = bytearray(GOLDEN[version].read_bytes())
    for offset in range(len(data)):
        data[offset] ^= flip
        with pytest.raises(BadRecord):
            _read_all(bytes(data))
        data[offset] ^= flip


def _read_all(data: bytes) -> None:
    SegmentHeader.decode(data)
    read(data)


def test_a_segment_that_is_cut_anywhere_has_no_record_that_is_not_whole() -> None:
    data = GOLDEN[2].read_bytes()
    ends = {SEGMENT_HEADER_BYTES, *(end for end, _, _ in records_of(memoryview(data)))}
    for length in range(SEGMENT_HEADER_BYTES, len(data)):
        if length in ends:
            _read_all(data[:length])
        else:
            with pytest.raises(BadRecord):
                _read_all(data[:length])


def test_a_damaged_record_says_where_it_is() -> None:
    data = golden_segment()
    first, second = [end for end, _, _ in records_of(memoryview(data))][:2]
    damaged = data[: second - 1] + b"\xff" + data[second:]
    with pytest.raises(BadRecord) as caught:
        read(damaged)
    assert caught.value.offset == first


def test_a_newer_format_is_refused_and_not_taken_for_damage() -> None:
    newer = HEADER.encode().replace(b"HEADRWAL\x02", b"HEADRWAL\x03")[:-4]
    with pytest.raises(Terminal, match="format 3 and this program reads up to 2: use a newer Headrace"):
        SegmentHeader.decode(newer + crc32(newer).to_bytes(4, "little"))
    with pytest.raises(Terminal, match="kind 77: use a newer Headrace"):
        read(HEADER.encode() + frame(77, b"from the future"))  # type: ignore[arg-type]


@given(st.tuples(u64, u64, u64, u64, u64), u64)
def test_headers_round_trip(fields: tuple[int, int, int, int, int], nonce: int) -> None:
    header = SegmentHeader(*fields, nonce)
    assert SegmentHeader.decode(header.encode()) == header


@given(u64, u64, st.none() | u64)
def test_marks_round_trip(durable: int, reserved_until: int, nonce: int | None) -> None:
    mark = Mark(durable, reserved_until, nonce)
    assert only(frame_mark(mark)) == mark


@given(u32, st.text(max_size=127), st.binary(max_size=64))
def test_schemas_round_trip(schema_id: int, collection: str, schema: bytes) -> None:
    record = SchemaRecord(schema_id, collection, schema)
    assert only(frame_schema(record)) == record


@given(
    numbers=st.tuples(u64, u64, u64),
    schema_id=u32,
    producer=st.text(max_size=50),
    rows=st.none() | st.lists(u32, min_size=1, max_size=20),
    messages=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
)
def test_writes_round_trip(
    numbers: tuple[int, int, int],
    schema_id: int,
    producer: str,
    rows: list[int] | None,
    messages: list[bytes],
) -> None:
    count = len(messages) if rows is None else len(rows)
    record = only(frame_writes(*numbers, count, schema_id, producer, rows, messages))
    assert isinstance(record, Writes)
    assert (record.first_lsn, record.first_seq, record.accepted_us) == numbers
    assert (record.count, record.schema_id, record.producer) == (count, schema_id, producer)
    assert record.messages == len(messages)
    assert bytes(record.payload) == b"".join(messages)
    assert (None if record.rows is None else record.rows.tolist()) == rows
