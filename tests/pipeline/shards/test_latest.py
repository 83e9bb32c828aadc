"""Which rows win, next to Python's own sorting."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipeline.shards.latest import LatestPerKey, RowOrder, Winner
from headrace.pipeline.shards.spool import Spool

SCHEMA = pa.schema(
    [
        ("k0", pa.int64()),
        ("k1", pa.string()),
        ("value", pa.string()),
        ("o0", pa.timestamp("us", "UTC")),
        ("o1", pa.int32()),
    ]
)
MUCH, LITTLE = 64 << 20, 400
Row = tuple[int, str, str, int | None, int | None]

orders = st.one_of(st.none(), st.integers(-3, 3))
drawn_rows = st.lists(
    st.tuples(st.integers(-2, 2), st.sampled_from(["", "a", "b"]), st.text(max_size=3), orders, orders),
    max_size=80,
    unique_by=lambda row: (row[0], row[1], row[3], row[4]),
)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [()] * len(SCHEMA)
    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
    )


def won(winner: Winner, rows: list[Row], at_once: int, limit: int) -> tuple[list[tuple[Any, ...]], bool]:
    with Spool(limit=0) as spool:
        latest = LatestPerKey(RowOrder(winner, ("o0", "o1")), 2, limit, spool)
        for begin in range(0, len(rows), at_once):
            latest.add(batch_of(rows[begin : begin + at_once]))
        found = [
            tuple(row.values())
            for batch in latest.rows()
            for row in batch.to_pylist()
            if batch.schema.names == ["k0", "k1", "value"]
        ]
        return sorted(found), spool.is_on_disk


def expected(winner: Winner, rows: list[Row]) -> list[tuple[Any, ...]]:
    def order(row: Row) -> list[tuple[bool, int]]:
        return [(part is not None, part or 0) for part in row[3:]]

    best: dict[tuple[int, str], Row] = {}
    for row in sorted(rows, key=order, reverse=winner is Winner.FIRST):
        best[row[0], row[1]] = row
    return sorted(row[:3] for row in best.values())


@pytest.mark.parametrize("limit", [MUCH, LITTLE], ids=["in memory", "with little memory"])
@pytest.mark.parametrize("winner", Winner)
@given(rows=drawn_rows, at_once=st.integers(1, 20))
def test_the_first_or_the_last_of_each_key_wins(
    winner: Winner, limit: int, rows: list[Row], at_once: int
) -> None:
    found, _ = won(winner, rows, at_once, limit)
    assert found == expected(winner, rows)


def test_losers_make_room_and_only_many_winners_go_to_the_disk() -> None:
    same: list[Row] = [(1, "a", f"value {number}", number, 0) for number in range(1_000)]
    other: list[Row] = [(number, "a", f"value {number}", number, 0) for number in range(1_000)]
    assert won(Winner.LAST, same, 10, 2_000) == (expected(Winner.LAST, same), False)
    assert won(Winner.LAST, other, 10, 2_000) == (expected(Winner.LAST, other), True)
    assert won(Winner.LAST, other, 10, MUCH) == (expected(Winner.LAST, other), False)


def test_a_key_with_very_many_rows_does_not_fill_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when it comes after everything has gone to the disk."""
    at_once: list[int] = []
    choose = LatestPerKey._chosen

    def watched(self: LatestPerKey, rows: pa.Table) -> pa.Table:
        at_once.append(rows.num_rows)
        return choose(self, rows)

    monkeypatch.setattr(LatestPerKey, "_chosen", watched)
    rows: list[Row] = [(number, "a", "value", number, 0) for number in range(1_000)]
    rows += [(7, "a", f"value {number}", number, 1) for number in range(20_000)]
    assert won(Winner.LAST, rows, 100, 20_000) == (expected(Winner.LAST, rows), True)
    assert max(at_once) < 500
