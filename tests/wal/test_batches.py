"""Rows of the log's writes, with the write that each came with."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wal import batches
from headrace.wal.batches import batches_of, index_writes, read_batches
from headrace.wal.records import BadRecord
from tests.ingest.iceberg.segment_builder import SegmentBuilder

NUMBERS = pa.schema([("n", pa.int64())])
EVERYTHING = 1 << 40


def numbers(*values: int) -> pa.RecordBatch:
    return pa.record_batch([list(values)], schema=NUMBERS)


def rows_of(
    data: bytes, collection: str, after: int = 0, through: int = EVERYTHING
) -> list[tuple[int, int, int]]:
    found = []
    for batch in batches_of(memoryview(data), collection, after, through):
        batch.validate(full=True)
        assert batch.schema.field("_lsn") == pa.field("_lsn", pa.int64(), nullable=False)
        assert batch.schema.field("_row") == pa.field("_row", pa.int32(), nullable=False)
        found += [(row["_lsn"], row["_row"], row["n"]) for row in batch.to_pylist()]
    return found


def test_each_message_is_a_write() -> None:
    segment = SegmentBuilder(next_lsn=100)
    segment.write("orders", numbers(1, 2), numbers(3))
    segment.write("others", numbers(7))
    segment.write("orders", numbers(), numbers(4))
    data = segment.data()
    assert rows_of(data, "orders") == [(100, 0, 1), (100, 1, 2), (101, 0, 3), (104, 0, 4)]
    assert rows_of(data, "others") == [(102, 0, 7)]
    assert rows_of(data, "none") == []


def test_a_message_can_be_many_writes() -> None:
    segment = SegmentBuilder()
    segment.write_coalesced("orders", numbers(1, 2, 3), [2, 0, 1])
    segment.write("orders", numbers(4))
    assert rows_of(segment.data(), "orders") == [(1, 0, 1), (1, 1, 2), (3, 0, 3), (4, 0, 4)]


def test_lsns_are_bounded_within_a_record() -> None:
    segment = SegmentBuilder()
    segment.write("orders", *(numbers(n) for n in range(1, 6)))
    segment.write_coalesced("orders", numbers(*range(6, 10)), [1, 1, 1, 1])
    assert [lsn for lsn, _, _ in rows_of(segment.data(), "orders", after=3, through=7)] == [4, 5, 6, 7]
    assert rows_of(segment.data(), "orders", after=9) == []
    assert rows_of(segment.data(), "orders", through=0) == []


def test_schemas_change_and_segments_follow_each_other() -> None:
    first = SegmentBuilder()
    first.write("orders", numbers(1))
    wider = pa.schema([*NUMBERS, ("text", pa.string())])
    first.write("orders", pa.record_batch([[2], ["two"]], schema=wider))
    first.write("orders", numbers(3))
    second = first.following()
    second.write("orders", numbers(4))
    index = index_writes([memoryview(first.data()), memoryview(second.data())])

    found = list(read_batches(index["orders"], 0, EVERYTHING))

    assert [batch.schema.names for batch in found] == [
        ["n", "_lsn", "_row"],
        ["n", "text", "_lsn", "_row"],
        ["n", "_lsn", "_row"],
    ]
    assert [batch.column("_lsn").to_pylist() for batch in found] == [[1], [2], [3, 4]]


def test_batches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    segment = SegmentBuilder()
    for n in range(10):
        segment.write("orders", numbers(n), numbers(n))
    segment.write_coalesced("orders", numbers(*range(100)), [100])
    data = segment.data()
    expected = rows_of(data, "orders")
    monkeypatch.setattr(batches, "MOST_MESSAGES", 6)
    monkeypatch.setattr(batches, "MOST_ROWS", 40)
    sizes = [batch.num_rows for batch in batches_of(memoryview(data), "orders", 0, EVERYTHING)]
    assert sizes == [6, 6, 6, 40, 40, 22]
    monkeypatch.setattr(batches, "MOST_BYTES", 1)
    assert rows_of(data, "orders") == expected
    assert [batch.num_rows for batch in batches_of(memoryview(data), "orders", 0, 4)] == [2, 2]


@pytest.mark.parametrize("rows", [[1, 1], [1, 3], [4, 0]])
def test_a_record_that_contradicts_itself_is_refused(rows: list[int]) -> None:
    segment = SegmentBuilder()
    segment.write_coalesced("orders", numbers(1, 2, 3), rows)
    with pytest.raises(BadRecord, match="does not hold what it says"):
        rows_of(segment.data(), "orders")


def test_damage_is_noticed() -> None:
    segment = SegmentBuilder()
    segment.write("orders", numbers(1))
    data = bytearray(segment.data())
    data[-20] ^= 1
    with pytest.raises(BadRecord, match="checksum"):
        rows_of(bytes(data), "orders")


WRITES = st.lists(
    st.one_of(
        st.tuples(st.just("each"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        st.tuples(st.just("coalesced"), st.lists(st.integers(0, 3), min_size=1, max_size=4)),
        st.tuples(st.just("others"), st.just([1])),
    ),
    max_size=8,
)


@given(WRITES, st.integers(0, 20), st.integers(0, 20), st.sampled_from([1, 3, 1 << 17]))
def test_all_rows_come_back(writes: list[tuple[str, list[int]]], after: int, through: int, most: int) -> None:
    segment = SegmentBuilder()
    expected: list[tuple[int, int, int]] = []
    for kind, rows in writes:
        lsns: Any = range(segment.next_lsn, segment.next_lsn + len(rows))
        places = [(lsn, row) for lsn, count in zip(lsns, rows, strict=True) for row in range(count)]
        if kind == "others":
            segment.write("others", numbers(0))
            continue
        if kind == "each":
            segment.write("orders", *(numbers(*(lsn for lsn, _ in places if lsn == own)) for own in lsns))
        else:
            segment.write_coalesced("orders", numbers(*(lsn for lsn, _ in places)), rows)
        expected += [(lsn, row, lsn) for lsn, row in places if after < lsn <= through]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MOST_MESSAGES", most)
        patch.setattr(batches, "MOST_ROWS", most)
        assert rows_of(segment.data(), "orders", after, through) == expected
