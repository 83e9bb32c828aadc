"""The oracle sees what is lost, doubled, in part, out of order, or reduced wrongly."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.certify.documents import BATCH, COLLECTION, documents
from headrace.certify.oracle import look
from headrace.testing.runtime import combine


def view(*numbers: range) -> list[dict[str, Any]]:
    written = [one for some in numbers for one in documents(some.start, len(some))]
    return list(combine(COLLECTION, written).values())


def test_the_view_of_whole_writes_is_right() -> None:
    found = look(view(range(1, 2 * BATCH + 1)), is_view=True)
    assert (found.prefix, found.problem()) == (2 * BATCH, "")


def test_nothing_is_the_view_of_nothing() -> None:
    assert (look([], is_view=True).prefix, look([], is_view=True).problem()) == (0, "")


def test_appended_rows_are_taken_together() -> None:
    rows = [*view(range(1, BATCH + 1)), *view(range(BATCH + 1, 2 * BATCH + 1))]
    assert look(rows, is_view=False).problem() == ""
    assert "has 2 rows" in look(rows, is_view=True).problem()


def test_a_write_in_part_is_seen() -> None:
    found = look(view(range(1, BATCH + 6)), is_view=True)
    assert found.prefix == 2 * BATCH
    assert found.lost == tuple(range(BATCH + 6, 2 * BATCH + 1))
    assert found.problem() == "of 40 documents 26, 27, 28 and 12 more are not there"


def test_a_write_that_is_missing_before_another_is_seen() -> None:
    found = look(view(range(BATCH + 1, 2 * BATCH + 1)), is_view=True)
    assert found.lost == tuple(range(1, BATCH + 1))


def test_what_counts_twice_is_seen_and_excused_only_if_asked() -> None:
    found = look(view(range(1, BATCH + 1), range(3, 4)), is_view=True)
    assert found.doubled == (3,)
    assert found.problem() == "3 is there more than once"
    assert found.problem(excuse_doubled=True) == ""


@pytest.mark.parametrize(("name", "value"), [("count", 1), ("total", 0), ("largest", 7), ("last", 1)])
def test_a_value_that_is_not_reduced_is_seen(name: str, value: int) -> None:
    rows = view(range(1, BATCH + 1))
    rows[0] = {**rows[0], name: value}
    (wrong,) = look(rows, is_view=True).wrong
    assert wrong.startswith(f"{name} of ")


def test_another_order_is_seen() -> None:
    rows = [*view(range(BATCH + 1, 2 * BATCH + 1)), *view(range(1, BATCH + 1))]
    assert "are out of order" in look(rows, is_view=False).problem()


def test_a_document_under_another_key_is_seen() -> None:
    rows = view(range(1, BATCH + 1))
    rows[0] = {
        **rows[0],
        "seen": rows[1]["seen"],
        **{k: rows[1][k] for k in ("count", "total", "largest", "last")},
    }
    assert "has documents of another key" in look(rows, is_view=True).problem()
