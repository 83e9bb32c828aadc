"""Ranges of key hashes, held against sets of hashes."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ConfigError
from headrace.model.key_range import FULL_RANGE, MAX_KEY_HASH, KeyRange

# A few hashes at either end of what a hash can be.
LOWEST = st.integers(0, 12)
HIGHEST = st.integers(MAX_KEY_HASH - 12, MAX_KEY_HASH)


def ranges_of(hashes: st.SearchStrategy[int]) -> st.SearchStrategy[KeyRange]:
    return st.tuples(hashes, hashes).map(lambda ends: KeyRange(min(ends), max(ends)))


SMALL_RANGES = st.sampled_from([LOWEST, HIGHEST]).flatmap(
    lambda hashes: st.tuples(ranges_of(hashes), st.lists(ranges_of(hashes), max_size=5))
)


def hashes_of(key_range: KeyRange | None) -> set[int]:
    return set() if key_range is None else set(range(key_range.begin, key_range.end + 1))


@given(SMALL_RANGES)
def test_an_intersection_is_what_both_hold(drawn: tuple[KeyRange, list[KeyRange]]) -> None:
    one, others = drawn
    for other in others:
        common = hashes_of(one) & hashes_of(other)
        assert hashes_of(one.intersection(other)) == common
        assert one.overlaps(other) == other.overlaps(one) == bool(common)
        assert one.intersection(other) == other.intersection(one)


@given(SMALL_RANGES)
def test_what_is_left_is_what_no_other_holds(drawn: tuple[KeyRange, list[KeyRange]]) -> None:
    whole, others = drawn
    left = whole.without(others)
    expected = hashes_of(whole).difference(*map(hashes_of, others))
    assert set().union(*map(hashes_of, left)) == expected
    assert sum(len(hashes_of(part)) for part in left) == len(expected)
    assert left == sorted(left)
    # No two of them touch: they would be one.
    assert all(one.end + 1 < other.begin for one, other in pairwise(left))


def test_examples() -> None:
    assert FULL_RANGE.without([]) == [FULL_RANGE]
    assert FULL_RANGE.without([FULL_RANGE]) == []
    assert FULL_RANGE.without([KeyRange(0, 9)]) == [KeyRange(10, MAX_KEY_HASH)]
    assert FULL_RANGE.without([KeyRange(5, 9), KeyRange(20, MAX_KEY_HASH), KeyRange(6, 7)]) == [
        KeyRange(0, 4),
        KeyRange(10, 19),
    ]
    assert KeyRange(5, 9).without([KeyRange(0, 4), KeyRange(10, 12)]) == [KeyRange(5, 9)]
    assert not KeyRange(0, 4).overlaps(KeyRange(5, 9))
    assert KeyRange(0, 5).intersection(KeyRange(5, 9)) == KeyRange(5, 5)


def test_ranges_read_and_sort_by_their_begin() -> None:
    assert str(FULL_RANGE) == "00000000-ffffffff"
    assert str(KeyRange(0x10, 0xABCDEF)) == "00000010-00abcdef"
    assert sorted([KeyRange(5, 6), KeyRange(0, 9), KeyRange(5, 5)]) == [
        KeyRange(0, 9),
        KeyRange(5, 5),
        KeyRange(5, 6),
    ]


@pytest.mark.parametrize(("begin", "end"), [(1, 0), (-1, 5), (0, MAX_KEY_HASH + 1), (2**40, 2**41)])
def test_what_is_no_range_is_refused(begin: int, end: int) -> None:
    with pytest.raises(ConfigError, match=f"key range {begin:#x} to {end:#x} is not one"):
        KeyRange(begin, end)


@pytest.mark.parametrize("at", [0, MAX_KEY_HASH])
def test_one_hash_is_a_range(at: int) -> None:
    assert hashes_of(KeyRange(at, at)) == {at}
