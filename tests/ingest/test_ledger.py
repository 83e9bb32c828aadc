"""What a session still has to announce, against a model that forgets nothing."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ingest import ledger as ledger_module
from headrace.ingest.ledger import Ledger
from headrace.model.tiers import Tier

EVERYTHING = 2**64 - 1
A_MILLION = 1_000_000


@dataclass
class Model:
    """Every write, in the order in which it was added, for each tier."""

    tiers: list[Tier]
    written: list[int] = field(default_factory=list)
    queues: dict[Tier, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queues = {tier: [] for tier in self.tiers}

    def add(self, first: int, count: int) -> None:
        for queue in self.queues.values():
            queue.extend(range(first, first + count))

    def take(self, tier: Tier, watermark: int, most: int) -> list[int]:
        queue, taken = self.queues[tier], 0
        while taken < min(most, len(queue)) and queue[taken] <= watermark:
            taken += 1
        self.queues[tier] = queue[taken:]
        return queue[:taken]


adding = st.tuples(st.just("add"), st.integers(0, 3), st.integers(1, 6))
adding_again = st.tuples(st.just("add again"), st.integers(1, 40), st.integers(1, 6))
taking = st.tuples(
    st.sampled_from([tier.name for tier in Tier]), st.integers(0, 80) | st.just(EVERYTHING), st.integers(1, 9)
)
skipping = st.tuples(st.just("skip"), st.just(0), st.just(0))


@pytest.mark.parametrize("dropped_at_once", [1, 4096])
@given(
    tiers=st.lists(st.sampled_from(list(Tier)), min_size=1, unique=True),
    steps=st.lists(adding | adding_again | taking | skipping, max_size=40),
)
def test_each_tier_hears_of_each_write_once_and_in_order(
    dropped_at_once: int, tiers: list[Tier], steps: list[tuple[str, int, int]]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger_module, "_DROPPED_AT_ONCE", dropped_at_once)
        _compare(tiers, steps)


def _compare(tiers: list[Tier], steps: list[tuple[str, int, int]]) -> None:
    ledger, model = Ledger(tiers), Model(tiers)
    next_lsn = 1
    for what, number, count in steps:
        if what == "add":
            next_lsn += number  # other sessions write in between
            ledger.add(next_lsn, count)
            model.add(next_lsn, count)
            next_lsn += count
        elif what == "add again":  # a producer sends writes again, which have their old LSNs
            if number + count <= next_lsn:
                ledger.add(number, count)
                model.add(number, count)
        elif what == "skip":
            ledger.skip(Tier.MEMORY)
            if Tier.MEMORY in tiers:
                model.queues[Tier.MEMORY] = []
        elif Tier[what] in tiers:
            ranges = ledger.take(Tier[what], number, count)
            assert all(first <= last for first, last in ranges)
            taken = [lsn for first, last in ranges for lsn in range(first, last + 1)]
            assert taken == model.take(Tier[what], number, count)
        for tier in Tier:
            assert ledger.pending(tier) == len(model.queues.get(tier, []))
        assert ledger.is_done == (not any(model.queues.values()))
    for tier in tiers:
        left = ledger.take(tier, EVERYTHING, EVERYTHING)
        assert [lsn for first, last in left for lsn in range(first, last + 1)] == model.queues[tier]
    assert ledger.is_done


def test_a_range_that_grows_after_it_was_announced_is_announced_further() -> None:
    ledger = Ledger([Tier.MEMORY, Tier.LOCAL_DISK])
    for first in (1, 3, 5):
        ledger.add(first, 2)
        assert ledger.take(Tier.MEMORY, EVERYTHING, 10) == [(first, first + 1)]
    assert ledger.ranges == 1
    assert ledger.take(Tier.LOCAL_DISK, 3, 10) == [(1, 3)]
    assert ledger.take(Tier.LOCAL_DISK, EVERYTHING, 10) == [(4, 6)]


def test_ranges_that_every_tier_has_announced_are_dropped() -> None:
    ledger = Ledger(list(Tier))
    for lsn in range(0, 100_000, 2):
        ledger.add(lsn + 1, 1)
        for tier in Tier:
            ledger.take(tier, EVERYTHING, 10)
    assert ledger.ranges < 5_000


@pytest.mark.parametrize(
    "step", [pytest.param(1, id="one run"), pytest.param(2, id="no two alike", marks=pytest.mark.full)]
)
def test_a_million_writes_in_flight_stay_under_fifty_megabytes(step: int) -> None:
    """The worst case is a session of which no two writes are neighbours, because others write in between."""
    process = psutil.Process()
    gc.collect()
    before = process.memory_info().rss
    ledger = Ledger(list(Tier))
    for lsn in range(1, 1 + step * A_MILLION, step):
        ledger.add(lsn, 1)
    held = [process.memory_info().rss - before]
    while ledger.pending(Tier.MEMORY):
        ledger.take(Tier.MEMORY, EVERYTHING, 16_384)
        held.append(process.memory_info().rss - before)
    print(f"a million writes, {ledger.ranges:,} ranges: {max(held):,} bytes at most")  # noqa: T201
    assert ledger.pending(Tier.COMMITTED) == A_MILLION
    assert ledger.ranges == (A_MILLION if step == 2 else 1)
    assert max(held) < 50 << 20
