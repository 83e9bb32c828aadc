"""Watermarks: when a write got where it is, and who is told."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from itertools import count
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ingest import progress as progress_module
from headrace.ingest.progress import Progress, Reached, Watermark
from headrace.model.tiers import Tier
from headrace.wal.state import Committed
from tests.waiting import DEADLINE_SECONDS, wait_until


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that shows 0, 1, 2 and so on."""
    clock = count()
    monkeypatch.setattr(progress_module, "now_us", lambda: next(clock))


@pytest.mark.usefixtures("ticks")
def test_a_watermark_says_when_each_write_got_there() -> None:
    watermark = Watermark(10, 500)
    assert watermark.advance(12, 501)
    assert not watermark.advance(12, 777)
    assert not watermark.advance(3)
    assert watermark.advance(20, 502)
    assert (watermark.lsn, watermark.at_us, watermark.snapshot_id) == (20, 2, 502)
    assert list(watermark.when(9, 20)) == [
        Reached(9, 10, 0, 500),
        Reached(11, 12, 1, 501),
        Reached(13, 20, 2, 502),
    ]
    assert list(watermark.when(14, 15)) == [Reached(14, 15, 2, 502)]
    assert list(watermark.when(12, 13)) == [Reached(12, 12, 1, 501), Reached(13, 13, 2, 502)]


@given(st.lists(st.integers(1, 5), min_size=1, max_size=30), st.data())
def test_when_covers_a_range_exactly(steps: list[int], data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = count()
        patch.setattr(progress_module, "now_us", lambda: next(clock))
        patch.setattr(progress_module, "_MOST_ADVANCES", 8)
        watermark = Watermark(0)
        reached_at = {}
        for at, step in enumerate(steps, 1):
            reached_at.update(dict.fromkeys(range(watermark.lsn + 1, watermark.lsn + step + 1), at))
            watermark.advance(watermark.lsn + step)
    first = data.draw(st.integers(1, watermark.lsn))
    last = data.draw(st.integers(first, watermark.lsn))
    runs = list(watermark.when(first, last))
    assert [lsn for run in runs for lsn in range(run.first, run.last + 1)] == list(range(first, last + 1))
    oldest_kept = len(steps) - 8
    for run in runs:
        for lsn in range(run.first, run.last + 1):
            assert run.at_us == reached_at[lsn] or reached_at[lsn] <= run.at_us <= oldest_kept + 4


def test_a_reader_never_sees_half_an_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each advance has its LSN as its snapshot id, so a reader that mixes two of them is found out.

    The reader looks between any two steps of an advance, which a tracer makes happen every time.
    """
    monkeypatch.setattr(progress_module, "_MOST_ADVANCES", 8)
    watermark = Watermark(1, 1)
    wrong: list[Reached] = []

    def look(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code is Watermark.advance.__code__ and event in ("line", "return"):
            last = watermark.lsn
            wrong.extend(run for run in watermark.when(last, last) if run.snapshot_id != last)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        for lsn in range(2, 30):
            watermark.advance(lsn, lsn)
    finally:
        sys.settrace(before)
    assert watermark.snapshot_id == 29
    assert wrong == []


@dataclass
class Ear:
    collection: str
    tiers: list[Tier]
    heard: int = 0
    waiting: list[Tier] = field(default_factory=list)

    def waits_for(self, tier: Tier) -> bool:
        return tier in self.tiers

    def wake(self) -> None:
        self.heard += 1


def test_only_those_are_woken_who_wait_for_it() -> None:
    progress = Progress(0, 0, {"orders": Committed(7, 70)})
    orders, others = Ear("orders", [Tier.LOCAL_DISK, Tier.COMMITTED]), Ear("others", [Tier.COMMITTED])
    progress.listen(orders)
    progress.listen(others)
    progress.advance(Tier.LOCAL_DISK, 5)
    assert (orders.heard, others.heard) == (1, 0)
    progress.advance(Tier.LOCAL_DISK, 5)  # no news
    progress.advance(Tier.OBJECT_STORAGE, 5)
    assert (orders.heard, others.heard) == (1, 0)
    progress.advance_committed("orders", 8, 71)
    assert (orders.heard, others.heard) == (2, 0)
    progress.forget(orders)
    progress.advance_committed("orders", 9, 72)
    assert orders.heard == 2
    assert progress.listeners == (others,)


def test_committed_is_a_watermark_of_each_collection() -> None:
    progress = Progress(9, 9, {"orders": Committed(7, 70)})
    assert progress.of(Tier.COMMITTED, "orders").lsn == 7
    assert progress.of(Tier.COMMITTED, "others").lsn == 0
    progress.advance_committed("others", 3, 1)
    assert progress.of(Tier.COMMITTED, "others").snapshot_id == 1
    assert progress.of(Tier.COMMITTED, "orders").snapshot_id == 70
    assert progress.of(Tier.LOCAL_DISK, "orders") is progress.of(Tier.LOCAL_DISK, "others")


def test_waiting_ends_with_the_advance_that_makes_it_true() -> None:
    progress = Progress(0, 0, {})
    seen: list[int] = []

    def is_at_two() -> bool:
        seen.append(progress.of(Tier.LOCAL_DISK, "").lsn)
        return seen[-1] >= 2

    waiter = threading.Thread(target=progress.wait_for, args=[is_at_two, DEADLINE_SECONDS])
    waiter.start()
    progress.advance(Tier.LOCAL_DISK, 1)
    wait_until(lambda: 1 in seen)
    assert waiter.is_alive()
    progress.advance(Tier.LOCAL_DISK, 2)
    waiter.join(DEADLINE_SECONDS)
    assert not waiter.is_alive()
    assert not progress.wait_for(lambda: False, 0.001)
