"""The memory of seen keys, held against a set."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Sequence
from datetime import date

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.protocol import key_digests
from headrace.protocol.key_digests import KeyDigests, SeenKeys, digest_keys

Digest = tuple[int, int]

# So few values in each half that digests often share one, which real digests almost never do.
DIGESTS: st.SearchStrategy[Digest] = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(
    lambda halves: (halves[0] * (2**64 // 6), halves[1])
)
BATCHES = st.lists(st.lists(DIGESTS, max_size=6), max_size=12)


def digests(batch: Sequence[Digest]) -> KeyDigests:
    halves = np.array(batch, dtype=np.uint64).reshape(-1, 2)
    return KeyDigests(halves[:, 0].copy(), halves[:, 1].copy())


def numbered(numbers: Sequence[int]) -> KeyDigests:
    """Different digests for different numbers, in no order that the numbers have."""
    spread = np.array(numbers, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return KeyDigests(spread, spread ^ np.uint64(2**63))


def stands_before(batch: Sequence[Digest], position: int) -> bool:
    return batch[position] in batch[:position]


# How long runs may be that are still merged: so short that there are several, or as it is.
MERGED = st.sampled_from([1, 4, key_digests.LARGEST_MERGED])


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    return lambda longest: monkeypatch.setattr(key_digests, "LARGEST_MERGED", longest)


@given(BATCHES, MERGED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_batch_is_remembered_unless_a_key_was_there(
    limit: Callable[[int], None], batches: list[list[Digest]], longest: int
) -> None:
    limit(longest)
    seen, expected = SeenKeys(), set[Digest]()
    for batch in batches:
        repeated = seen.add(digests(batch))
        if len(set(batch)) == len(batch) and expected.isdisjoint(batch):
            assert repeated is None
            expected.update(batch)
        else:
            assert repeated is not None
            assert batch[repeated] in expected or stands_before(batch, repeated)


@given(BATCHES, BATCHES, MERGED)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_key_is_marked_once_and_only_if_it_is_known(
    limit: Callable[[int], None], batches: list[list[Digest]], marks: list[list[Digest]], longest: int
) -> None:
    limit(longest)
    seen, known, marked = SeenKeys(), set[Digest](), set[Digest]()
    for batch in batches:
        if seen.add(digests(batch)) is None:
            known.update(batch)
    for batch in marks:
        unknown, repeated = seen.mark(digests(batch))
        if len(set(batch)) == len(batch) and known.issuperset(batch) and marked.isdisjoint(batch):
            assert (unknown, repeated) == (None, None)
            marked.update(batch)
        else:
            # One of the two is said, and is so; after that the stream has ended.
            assert (unknown is None) != (repeated is None)
            assert unknown is None or batch[unknown] not in known
            assert repeated is None or batch[repeated] in marked or stands_before(batch, repeated)
            return


@given(BATCHES, BATCHES)
def test_marks_survive_what_is_added_later(batches: list[list[Digest]], later: list[list[Digest]]) -> None:
    seen, known = SeenKeys(), list[Digest]()
    for batch in batches:
        if seen.add(digests(batch)) is None:
            known += batch
    assert seen.mark(digests(known)) == (None, None)
    for batch in later:
        seen.add(digests(batch))
    for digest in known:
        assert seen.mark(digests([digest])) == (None, 0)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_many_batches_are_merged_into_few(size: int) -> None:
    seen = SeenKeys()
    numbers = list(range(size * 300))
    batches = [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]
    for batch in batches:
        assert seen.add(numbered(batch)) is None
    assert len(seen._runs) <= 10
    assert sum(map(len, seen._runs)) == len(numbers)
    for batch in batches:
        assert seen.add(numbered([len(numbers), *batch])) == 1
        assert seen.mark(numbered(batch)) == (None, None)
    assert seen.mark(numbered([len(numbers)])) == (0, None)


def test_nothing_is_in_an_empty_batch() -> None:
    seen = SeenKeys()
    nothing = digests([])
    assert seen.add(nothing) is None
    assert seen.mark(nothing) == (None, None)
    assert seen.add(digests([(1, 1)])) is None
    assert seen.add(nothing) is None
    assert seen.mark(nothing) == (None, None)
    assert len(digest_keys(pa.record_batch({"id": pa.array([], pa.int64())}))) == 0


def test_a_refused_batch_leaves_nothing() -> None:
    seen = SeenKeys()
    seen.add(digests([(1, 1)]))
    assert seen.add(digests([(2, 2), (1, 1), (3, 3)])) == 1
    assert seen.add(digests([(2, 2), (3, 3)])) is None


def test_a_key_that_only_shares_a_half_is_another() -> None:
    seen = SeenKeys()
    assert seen.add(digests([(1, 1), (1, 3), (2, 1), (1, 2)])) is None
    assert seen.add(digests([(2, 2), (3, 3)])) is None
    assert seen.mark(digests([(1, 2), (1, 3), (1, 1)])) == (None, None)
    assert seen.mark(digests([(2, 1), (1, 4)])) == (1, None)


def test_equal_keys_have_equal_digests_and_others_do_not() -> None:
    rows = pa.record_batch(
        {
            "text": ["a", "a", "a\0", "", "a"],
            "day": pa.array([date(2026, 1, 1), date(2026, 1, 1), *[date(2026, 1, 2)] * 3], pa.date32()),
        }
    )
    found = digest_keys(rows)
    pairs = list(zip(found.high.tolist(), found.low.tolist(), strict=True))
    assert pairs[0] == pairs[1]
    assert len(set(pairs)) == 4
    again = digest_keys(rows.slice(1, 3))
    assert list(zip(again.high.tolist(), again.low.tolist(), strict=True)) == pairs[1:4]


def test_columns_do_not_run_into_each_other() -> None:
    rows = pa.record_batch({"a": ["x", "xy"], "b": ["yz", "z"]})
    assert len(set(digest_keys(rows).high.tolist())) == 2


def test_two_million_keys_cost_tens_of_megabytes() -> None:
    draw = np.random.default_rng(7)
    seen = SeenKeys()
    tracemalloc.start()
    try:
        for _ in range(40):
            high, low = draw.integers(0, 2**63, (2, 50_000), dtype=np.uint64)
            assert seen.add(KeyDigests(high, low)) is None
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert sum(map(len, seen._runs)) == 2_000_000
    assert peak < 100_000_000
