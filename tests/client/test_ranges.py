"""Indexes over LSNs, against the plain sets and lists that they stand for."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from headrace.client.ranges import LsnRanges, Snapshots

small = st.integers(1, 60)


@given(st.lists(st.tuples(small, st.integers(0, 8)), max_size=12))
def test_ranges_are_the_set_of_their_numbers(added: list[tuple[int, int]]) -> None:
    ranges, numbers = LsnRanges(), set[int]()
    assert not ranges
    for first, more in added:
        ranges.add(first, first + more)
        numbers.update(range(first, first + more + 1))
    assert {lsn for lsn in range(80) if lsn in ranges} == numbers
    assert bool(ranges) == bool(numbers)
    pieces = list(ranges)
    assert all(last + 1 < first for (_, last), (first, _) in itertools.pairwise(pieces))
    for lsn in range(1, 80):
        assert ranges.below(lsn) == max(n for n in range(lsn + 1) if n not in numbers)


def test_a_snapshot_holds_what_came_after_the_one_before() -> None:
    snapshots = Snapshots()
    assert snapshots.find(1) is None
    snapshots.add(10, 111)
    snapshots.add(20, -222)
    snapshots.add(20, 333)  # told again
    assert [snapshots.find(lsn) for lsn in (1, 10, 11, 20, 21)] == [111, 111, -222, -222, None]


def test_old_snapshots_are_forgotten_and_never_mistaken() -> None:
    snapshots = Snapshots(most=10)
    for number in range(1, 100):
        snapshots.add(number * 10, number)
    found = [snapshots.find(number * 10) for number in range(1, 100)]
    known = [number for number in found if number is not None]
    assert 5 <= len(known) <= 10
    assert found == [None] * (99 - len(known)) + known
    assert known == list(range(100 - len(known), 100))
