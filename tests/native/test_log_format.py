"""The native log writes bit for bit what the reader in Python takes for a segment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wal.batches import batches_of
from headrace.wal.records import Kind, Mark, SchemaRecord, SegmentHeader, Writes, frame_schema
from headrace.wal.segments import records_of
from headrace.wal.state import CollectionState, Committed, LogState, ProducerState
from tests.native.native_log import NativeLog, native_log
from tests.wal.frames import frame_mark, frame_writes

pytestmark = pytest.mark.processes

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("name", pa.string())])

u64 = st.integers(0, 2**64 - 1)
u32 = st.integers(0, 2**32 - 1)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@pytest.fixture(scope="module")
def native() -> Iterator[NativeLog]:
    with native_log() as log:
        yield log


@st.composite
def writes(draw: st.DrawFn) -> dict[str, Any]:
    rows = draw(st.none() | st.lists(u32, min_size=1, max_size=9))
    return {
        "first_lsn": draw(u64),
        "first_seq": draw(u64),
        "accepted_us": draw(u64),
        "count": draw(u32) if rows is None else len(rows),
        "schema_id": draw(u32),
        "messages": draw(u32),
        "producer": draw(text),
        "rows": rows,
        "payload": (draw(st.binary(max_size=200)) * 8).hex(),
    }


@given(st.tuples(*[u64] * 6))
def test_headers_are_the_same(native: NativeLog, fields: tuple[int, ...]) -> None:
    names = ("term", "number", "first_lsn", "reserved_until", "previous_length", "nonce")
    header = dict(zip(names, fields, strict=True))
    assert native.encode({"header": header}) == SegmentHeader(**header).encode()


@given(
    st.tuples(u64, u64, u64),
    st.tuples(u32, text.filter(lambda name: len(name.encode()) < 2**16), st.binary(max_size=99)),
    st.lists(writes(), max_size=4),
)
def test_records_are_the_same_and_are_read_back(
    native: NativeLog,
    mark: tuple[int, int, int],
    schema: tuple[int, str, bytes],
    all_writes: list[dict[str, Any]],
) -> None:
    durable, reserved_until, nonce = mark
    schema_id, collection, message = schema
    data = native.encode(
        {"mark": {"durable": durable, "reserved_until": reserved_until, "nonce": nonce}},
        {"schema": {"id": schema_id, "collection": collection, "message": message.hex()}},
        *({"writes": one} for one in all_writes),
    )
    parts = [frame_mark(Mark(*mark)), frame_schema(SchemaRecord(*schema))]
    for one in all_writes:
        numbers = {key: one[key] for key in ("first_lsn", "first_seq", "accepted_us", "count", "schema_id")}
        messages = [bytes.fromhex(one["payload"])] + [b""] * (one["messages"] > 1)
        if one["messages"] not in (1, 2):
            continue
        framed = frame_writes(**numbers, producer=one["producer"], rows=one["rows"], messages=messages)
        assert framed == native.encode({"writes": one})
    assert data.startswith(b"".join(parts))

    header = SegmentHeader(0, 1, 1, 1, 0, 7).encode()
    read = [record for _, _, record in records_of(memoryview(header + data))]
    assert read[:2] == [Mark(*mark), SchemaRecord(*schema)]
    for found, one in zip(read[2:], all_writes, strict=True):
        assert isinstance(found, Writes)
        assert bytes(found.payload).hex() == one["payload"]
        assert (None if found.rows is None else found.rows.tolist()) == one["rows"]
        rest = ("first_lsn", "first_seq", "accepted_us", "count", "schema_id", "messages", "producer")
        assert {key: getattr(found, key) for key in rest} == {key: one[key] for key in rest}


lsns = st.integers(0, 2**53)
collections = st.builds(
    CollectionState,
    text,
    st.binary(max_size=30),
    st.lists(text, max_size=2).map(tuple),
    st.none()
    | st.dictionaries(text, st.recursive(text | st.none() | lsns, lambda inner: st.lists(inner)), max_size=3),
)
states = st.builds(
    LogState,
    last_lsn=lsns,
    reserved_until=lsns,
    uptime_us=st.integers(0, 10**9),  # less than a producer has to be silent for
    collections=st.lists(collections, max_size=3).map(lambda ones: {one.name: one for one in ones}),
    producers=st.dictionaries(
        st.tuples(text, text), st.builds(ProducerState, lsns, lsns, st.integers(0, 10**9)), max_size=4
    ),
    lost=st.lists(st.tuples(lsns, lsns), max_size=3),
    committed=st.dictionaries(
        text, st.builds(Committed, lsns, st.none() | st.integers(0, 2**63 - 1)), max_size=3
    ),
    forgotten_lsn=lsns,
)


@given(states)
def test_a_state_of_either_is_a_state_of_the_other(native: NativeLog, state: LogState) -> None:
    again = LogState.from_json(native.state(orjson.loads(state.encode())))
    assert again == state


@pytest.mark.parametrize("producers", [0, 3], ids=["as it comes", "by producers"])
def test_messages_that_stand_in_one_record_are_read_as_their_writes(
    native: NativeLog, producers: int
) -> None:
    """Neighbours are put together as they are; a reader gets their rows by LSN."""
    batches = [pa.record_batch({"id": [n], "name": [f"row {n}"]}, schema=SCHEMA) for n in range(5)] + [
        pa.record_batch({"id": [8, 9], "name": [None, "x" * 99]}, schema=SCHEMA)
    ]
    rows = None if not producers else [1, 1, 1, 1, 1, 2]
    payload = b"".join(batch.serialize().to_pybytes() for batch in batches)
    data = SegmentHeader(0, 1, 1, 100, 0, 7).encode() + native.encode(
        {"schema": {"id": 0, "collection": "orders", "message": SCHEMA.serialize().to_pybytes().hex()}},
        {
            "writes": {
                "first_lsn": 10,
                "first_seq": producers,
                "accepted_us": 1,
                "count": 6,
                "schema_id": 0,
                "messages": 6,
                "producer": "p" * producers,
                "rows": rows,
                "payload": payload.hex(),
            }
        },
    )
    [read] = batches_of(memoryview(data), "orders", 0, 99)
    assert read["_lsn"].to_pylist() == [10, 11, 12, 13, 14, 15, 15]
    assert read["_row"].to_pylist() == [0, 0, 0, 0, 0, 0, 1]
    assert read.select(SCHEMA.names) == pa.concat_batches(batches)


def test_a_collection_stands_as_it_was_encoded(native: NativeLog) -> None:
    collection = CollectionState(
        "orders", b"schema", ("/id",), {"type": "object", "x": [1.5, None, "\u2028"]}
    )
    raw = json.loads(collection.encode())
    [(_, kind, read)] = records_of(
        memoryview(SegmentHeader(0, 1, 1, 1, 0, 7).encode() + native.encode({"collection": raw}))
    )
    assert isinstance(read, dict)
    assert (kind, CollectionState.from_json(read)) == (Kind.COLLECTION, collection)
