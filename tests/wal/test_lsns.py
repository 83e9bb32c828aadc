"""No LSN is given away twice, and each that was is either in the log or known to be lost."""

from __future__ import annotations

import tempfile
import threading
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import Terminal
from headrace.model.lsn import RESERVED_AT_ONCE, first_lsn_of, last_lsn_of
from headrace.wal.recovery import recover
from tests.waiting import DEADLINE_SECONDS, wait_until
from tests.wal.support import Disk, OpenLog, entry, lsns_in

BLOCK = 8


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wal.writer.RESERVED_AT_ONCE", BLOCK)


def test_terms_share_no_number_and_fit_in_a_double() -> None:
    assert first_lsn_of(0) == 1
    assert all(first_lsn_of(term + 1) == last_lsn_of(term) + 1 for term in range(5))
    assert last_lsn_of(2**17 - 1) < 2**53


def test_a_new_log_starts_at_one_and_has_lost_nothing(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        assert log.writer.last_lsn == 0
        assert [log.write(1), log.write(2)] == [1, 2]
        assert log.writer.last_lsn == 2
    assert log.recovered.state.lost == []


def test_a_restart_skips_what_is_left_of_the_block(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        log.synced_write(1)
    with OpenLog(tmp_path) as log:
        assert log.recovered.state.lost == [(2, RESERVED_AT_ONCE)]
        assert log.writer.last_lsn == 1
        assert log.synced_write(2) == RESERVED_AT_ONCE + 1
    assert lsns_in(tmp_path) == [1, RESERVED_AT_ONCE + 1]


def test_restarts_without_writes_lose_one_range(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        log.synced_write(1)
    for times in range(1, 5):
        with OpenLog(tmp_path) as log:
            pass  # it sets a block aside before it ends
        assert log.recovered.state.lost == [(2, times * RESERVED_AT_ONCE)]


@pytest.mark.usefixtures("small_blocks")
def test_no_number_is_given_away_before_its_block_is_synced(tmp_path: Path) -> None:
    disk, folder, copy = Disk(), tmp_path / "wal", tmp_path / "copy"
    log = OpenLog(folder, files=disk)
    lsn = log.synced_write(1)
    wait_until(lambda: recover(folder).state.reserved_until > lsn)
    disk.hold()
    given: list[int] = []
    writing = threading.Thread(target=lambda: given.extend(log.write(n) for n in range(3 * BLOCK)))
    writing.start()
    assert disk.holding.wait(DEADLINE_SECONDS)
    wait_until(lambda: log.writer._next_lsn == log.writer._reserved_until, "the end of the block")
    assert writing.is_alive()
    disk.copy_to(folder, copy, unsynced=False)
    assert max(given) < recover(copy).state.reserved_until
    disk.let_go()
    writing.join(DEADLINE_SECONDS)
    log.writer.close(DEADLINE_SECONDS)
    assert given == list(range(lsn + 1, lsn + 1 + 3 * BLOCK))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("count", [BLOCK // 2 + 1, BLOCK, BLOCK + 1, 5 * BLOCK])
def test_a_message_may_have_more_writes_than_a_block_has_numbers(tmp_path: Path, count: int) -> None:
    with OpenLog(tmp_path) as log:
        first = log.synced_write(1)
        lsn = log.writer.append(entry(*range(count), rows=[1] * count))
        assert lsn == first + 1
        assert log.synced_write(2) == lsn + count


def test_another_term_loses_all_that_the_one_before_may_have_given_away(tmp_path: Path) -> None:
    with OpenLog(tmp_path) as log:
        log.synced_write(1)
    with OpenLog(tmp_path, term=1) as log:
        assert log.recovered.state.lost == [(2, first_lsn_of(1) - 1)]
        assert log.synced_write(2) == first_lsn_of(1)
    with OpenLog(tmp_path, term=1) as log:
        first_after = first_lsn_of(1) + RESERVED_AT_ONCE
        assert log.recovered.state.lost[1:] == [(first_lsn_of(1) + 1, first_after - 1)]


def test_another_term_that_wrote_nothing_is_not_forgotten(tmp_path: Path) -> None:
    """Its process may end between claiming the term and its first record."""
    with OpenLog(tmp_path) as log:
        log.synced_write(1)
    recovered = recover(tmp_path)
    recovered.start_term(1)
    again = recover(tmp_path)
    again.start_term(1)
    assert again.state == recovered.state
    assert again.state.reserved_until == first_lsn_of(1)


def test_an_term_without_anything_from_before_has_lost_all_of_it(tmp_path: Path) -> None:
    recovered = recover(tmp_path)
    recovered.start_term(2)
    assert recovered.state.lost == [(1, first_lsn_of(2) - 1)]


def test_an_term_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wal.writer.last_lsn_of", lambda _: 3)
    with OpenLog(tmp_path) as log:
        assert [log.write(1), log.write(2)] == [1, 2]
        with pytest.raises(Terminal, match="restart the server"):
            log.write(3)
        log.await_durable(2)


steps = st.lists(
    st.tuples(
        st.sampled_from(["end", "crash and lose what was not synced", "crash and keep it", "new term"]),
        st.integers(0, 2 * BLOCK),  # writes that are synced
        st.integers(0, BLOCK // 2),  # writes that are not
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=25)
@given(steps)
def test_no_number_is_ever_used_twice(steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.wal.writer.RESERVED_AT_ONCE", BLOCK)
        _live_and_die(Path(name), steps)


def _live_and_die(base: Path, steps: list[tuple[str, int, int]]) -> None:
    given: list[int] = []
    kept: list[int] = []
    folder, term = base / "0", 0
    for life, (end, synced, unsynced) in enumerate(steps):
        disk = Disk()
        log = OpenLog(folder, term=term, files=disk)
        found = [lsn for _, one in log.found for lsn in range(one.first_lsn, one.last_lsn + 1)]
        _check_all_accounted_for(given, kept, found, log.recovered.state.lost)
        kept = found
        mine = [log.synced_write(number) for number in range(synced)]
        kept += mine
        disk.hold()
        left = log.writer._reserved_until - log.writer._next_lsn
        mine += [log.write(number) for number in range(min(unsynced, left))]
        assert not set(mine) & set(given)
        assert given + mine == sorted(given + mine)
        given += mine
        if end == "end":
            disk.let_go()
            log.writer.close(DEADLINE_SECONDS)
            kept = given_and_not_lost(given, log.recovered.state.lost)
            continue
        after = base / str(life + 1)
        disk.copy_to(folder, after, unsynced=end == "crash and keep it")
        disk.let_go()
        log.writer.close(DEADLINE_SECONDS)
        folder = after
        term += end == "new term"


def given_and_not_lost(given: list[int], lost: list[tuple[int, int]]) -> list[int]:
    return [lsn for lsn in given if not any(first <= lsn <= last for first, last in lost)]


def _check_all_accounted_for(
    given: list[int], kept: list[int], found: list[int], lost: list[tuple[int, int]]
) -> None:
    assert set(kept) <= set(found) <= set(given)
    assert found == sorted(set(found))
    for lsn in given:
        is_lost = any(first <= lsn <= last for first, last in lost)
        assert is_lost != (lsn in found)
    assert all(before[1] < after[0] for before, after in pairwise(lost))
