"""The low-water mark has one history, whoever else believes that it may move it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import EndpointUnavailable, Fenced
from headrace.ingest.cleaner import _moved
from headrace.ingest.low_water import LowWater, LowWaterMark, read_newest
from headrace.wal.records import SegmentHeader
from headrace.wal.segments import Segment
from tests.ingest.support import Store


@pytest.fixture
def term(store: Store) -> int:
    store.log_id()
    return store.claim_term()


def mark_of(tmp_path: Path, store: Store, term: int) -> LowWaterMark:
    return LowWaterMark(LowWater(), tmp_path, store, term)


def move(mark: LowWaterMark, number: int) -> None:
    """Gives a segment up, so that this mark is different from all others."""
    mark.move(lambda before: replace(before, given_up=(*before.given_up, number)))


def segment(number: int) -> Segment:
    header = SegmentHeader(0, number, 10 * number, 10 * number, 0)
    return Segment(
        Path(f"{number}.wal"), header, 64, 10 * number + 9, {"orders": 10 * number + 9}, None, True
    )


def test_the_mark_does_not_go_back_where_the_disk_has_what_the_store_knows_to_be_released() -> None:
    """As after a start without the store: its newer mark was read when files were there already."""
    mark = LowWater(first_segment=9, first_lsn=90, given_up=(9,))
    for rest, expected in ((7, mark), (10, replace(mark, first_segment=10, first_lsn=100, given_up=()))):
        moved = _moved(mark, [segment(5), segment(6)], segment(rest), {})
        assert replace(moved, tables={}) == expected


@pytest.mark.parametrize("is_tidied", [False, True], ids=["taken", "free again"])
def test_of_two_servers_in_one_term_one_moves_the_mark(
    tmp_path: Path, store: Store, term: int, is_tidied: bool
) -> None:
    """What the other one has released, or put into quarantine, would be forgotten with its mark."""
    one, other = mark_of(tmp_path, store, term), mark_of(tmp_path, store, term)
    move(one, 1)
    if is_tidied:
        move(one, 2)
        move(one, 3)
        one.tidy()
    with pytest.raises(Fenced, match="another server has moved the low-water mark"):
        move(other, 9)
    newest = read_newest(store)
    assert newest == one.current
    move(one, 4)
    assert 9 not in one.current.given_up


def test_a_server_that_was_replaced_puts_no_mark_after_its_successors(
    tmp_path: Path, store: Store, term: int
) -> None:
    old, new = mark_of(tmp_path, store, term), mark_of(tmp_path, store, store.claim_term())
    move(new, 1)
    with pytest.raises(Fenced, match="another server took over"):
        move(old, 9)
    assert read_newest(store) == new.current


def test_a_mark_that_a_replaced_server_has_put_is_passed_over(
    tmp_path: Path, store: Store, term: int
) -> None:
    old, new = mark_of(tmp_path, store, term), mark_of(tmp_path, store, store.claim_term())
    with pytest.raises(Fenced, match="another server took over"):
        move(old, 9)
    move(new, 1)
    assert new.current.given_up == (1,)
    assert read_newest(store) == new.current


def test_a_mark_of_which_only_the_answer_was_lost_is_passed_over(
    tmp_path: Path, store: Store, term: int
) -> None:
    mark = mark_of(tmp_path, store, term)

    def lose_the_answer() -> None:
        store.after_put = lambda: None
        raise EndpointUnavailable("no answer")

    store.after_put = lose_the_answer
    with pytest.raises(EndpointUnavailable, match="no answer"):
        move(mark, 1)
    move(mark, 2)
    assert (mark.current.number, mark.current.given_up) == (2, (2,))
    assert read_newest(store) == mark.current
