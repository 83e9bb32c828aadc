"""The log's writer: what it promises when the disk is slow, full or broken."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from headrace.errors import ServerUnavailable, StorageFull, Terminal
from headrace.wal.groups import WriteStream
from headrace.wal.records import Kind, Writes
from headrace.wal.recovery import recover
from headrace.wal.segments import Segment, map_segment, records_of, segment_files
from headrace.wal.state import PRODUCER_SILENCE_US, CollectionState, Committed, LogState, ProducerState
from headrace.wal.writer import LogLimits
from tests.waiting import DEADLINE_SECONDS, wait_until
from tests.wal.support import (
    BROKEN,
    NEVER_BY_ITSELF,
    NO_SPACE,
    SCHEMA_MESSAGE,
    STREAM,
    Disk,
    OpenLog,
    entry,
    lsns_in,
)

OTHER = WriteStream("orders", SCHEMA_MESSAGE)
PRODUCER = WriteStream("orders", SCHEMA_MESSAGE, "till-1")


def held_log(folder: Path, limits: LogLimits = NEVER_BY_ITSELF) -> tuple[OpenLog, Disk]:
    """A log that waits in a sync, with one write in it."""
    disk = Disk()
    log = OpenLog(folder, files=disk, limits=limits)
    log.synced_write(0)
    disk.hold()
    log.write(1)
    assert disk.holding.wait(DEADLINE_SECONDS)
    return log, disk


def writes_in(folder: Path) -> list[Writes]:
    return [
        record
        for path in segment_files(folder)
        for _, _, record in records_of(map_segment(path))
        if isinstance(record, Writes)
    ]


# Group commit.


def test_one_sync_covers_all_that_waited_for_it(tmp_path: Path) -> None:
    log, disk = held_log(tmp_path)
    syncs = disk.syncs
    last = [log.write(number) for number in range(2, 100)][-1]
    disk.let_go()
    log.await_durable(last)
    log.writer.close(DEADLINE_SECONDS)
    assert disk.syncs == syncs + 2
    assert log.durable[-2:] == [last - 98, last]


def test_nothing_is_announced_before_the_sync_has_returned(tmp_path: Path) -> None:
    log, disk = held_log(tmp_path)
    assert lsns_in(tmp_path) == [1, 2]  # the bytes are there
    assert log.durable == [1]
    declaring = threading.Thread(target=log.writer.declare, args=[CollectionState("new", b"")])
    declaring.start()
    wait_until(lambda: log.writer._waiting, "a declaration that waits")
    assert declaring.is_alive()
    assert log.durable == [1]
    disk.let_go()
    declaring.join()
    log.await_durable(2)
    log.writer.close(DEADLINE_SECONDS)


def test_a_group_is_bounded(tmp_path: Path) -> None:
    size = entry(1).message.size
    log, disk = held_log(tmp_path, LogLimits(segment_seconds=3600.0, group_bytes=2 * size))
    for number in range(6):
        log.write(number)
    disk.let_go()
    log.await_durable(8)
    log.writer.close(DEADLINE_SECONDS)
    assert log.durable == [1, 2, 4, 6, 8]


def test_neighbours_of_one_stream_become_one_record_and_order_is_kept(tmp_path: Path) -> None:
    log, disk = held_log(tmp_path)
    streams = [STREAM, STREAM, OTHER, STREAM, PRODUCER, PRODUCER, PRODUCER]
    numbers = [0, 0, 0, 0, 5, 6, 9]  # the last one left some out
    for stream, seq in zip(streams, numbers, strict=True):
        log.write(1, stream=stream, seq=seq)
    log.writer.append(entry(1, 2, 3, rows=[1, 2]))
    log.writer.append(entry(4, rows=[1]))
    log.write(5)
    disk.let_go()
    log.await_durable(13)
    log.writer.close(DEADLINE_SECONDS)
    records = writes_in(tmp_path)[2:]
    assert [(one.first_lsn, one.count, one.messages, one.first_seq) for one in records] == [
        (3, 2, 2, 0),
        (5, 1, 1, 0),
        (6, 1, 1, 0),
        (7, 2, 2, 5),
        (9, 1, 1, 9),
        (10, 3, 2, 0),
        (13, 1, 1, 0),
    ]
    assert records[-2].rows is not None
    assert records[-2].rows.tolist() == [1, 2, 1]
    assert records[-1].rows is None
    schemas = [kind for _, kind, _ in records_of(map_segment(segment_files(tmp_path)[0]))]
    assert schemas.count(Kind.SCHEMA) == 1


def test_a_record_has_a_size_that_can_be_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wal.groups._MOST_BYTES_OF_A_RECORD", 2 * entry(1).message.size)
    log, disk = held_log(tmp_path)
    for number in range(5):
        log.write(number)
    disk.let_go()
    log.await_durable(7)
    log.writer.close(DEADLINE_SECONDS)
    assert [one.count for one in writes_in(tmp_path)] == [1, 1, 2, 2, 1]


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, bytes(data[:7])))
    with OpenLog(tmp_path) as log:
        log.synced_write(*range(50))
    monkeypatch.undo()
    assert lsns_in(tmp_path) == [1]


# Room.


def test_writers_learn_that_too_much_waits_and_when_it_is_over(tmp_path: Path) -> None:
    log, disk = held_log(tmp_path, LogLimits(segment_seconds=3600.0, waiting_bytes=1000))
    assert log.writer.wait_for_room(0)
    while log.writer.room >= 0:
        log.write(1)
    assert log.writer.waiting_bytes > 1000
    assert not log.writer.wait_for_room(0.01)
    assert log.writer.unsynced_since_us == 1_000
    disk.let_go()
    assert log.writer.wait_for_room(DEADLINE_SECONDS)
    log.writer.close(DEADLINE_SECONDS)
    assert log.writer.waiting_bytes == 0
    assert log.writer.unsynced_since_us is None


# A disk that fails.


@pytest.mark.parametrize("unsynced", [False, True], ids=["unsynced bytes gone", "unsynced bytes there"])
def test_after_a_failed_sync_everything_is_written_anew_and_nothing_twice(
    tmp_path: Path, unsynced: bool
) -> None:
    folder = tmp_path / "wal"
    log, disk = held_log(folder)
    log.write(2)
    disk.sync_errors += [BROKEN, BROKEN, BROKEN]
    disk.let_go()
    log.await_durable(3)
    wait_until(lambda: log.reasons[-1] is None)
    log.synced_write(3)
    log.writer.close(DEADLINE_SECONDS)
    [given_up] = [segment for segment in log.sealed if segment.last_lsns]
    assert given_up.last_lsn == 1
    disk.copy_to(folder, tmp_path / "after", unsynced=unsynced)
    for found in (folder, tmp_path / "after"):
        assert lsns_in(found) == [1, 2, 3, 4]
    assert log.durable == [1, 2, 3, 4]  # never before its turn


def test_what_a_failed_sync_left_behind_counts_for_nothing(tmp_path: Path) -> None:
    """Even if the bytes of the failed sync come back, as they may after a crash."""
    folder = tmp_path / "wal"
    log, disk = held_log(folder)
    [path] = segment_files(folder)
    with_unsynced = path.read_bytes()
    disk.sync_errors.append(BROKEN)
    disk.let_go()
    log.await_durable(2)
    log.writer.close(DEADLINE_SECONDS)
    assert path.stat().st_size < len(with_unsynced)  # its room is given back
    path.write_bytes(with_unsynced)
    assert lsns_in(folder) == [1, 2]


def test_a_crash_while_the_disk_fails_keeps_what_was_synced(tmp_path: Path) -> None:
    folder = tmp_path / "wal"
    log, disk = held_log(folder)
    disk.sync_errors += [BROKEN] * 1000
    disk.let_go()
    wait_until(lambda: len(log.reasons) > 2)
    for kept in (True, False):
        disk.copy_to(folder, tmp_path / str(kept), unsynced=kept)
        assert lsns_in(tmp_path / str(kept))[0] == 1
        assert set(lsns_in(tmp_path / str(kept))) <= {1, 2}
    disk.sync_errors.clear()
    log.await_durable(2)
    log.writer.close(DEADLINE_SECONDS)
    assert lsns_in(folder) == [1, 2]


def test_a_full_disk_refuses_writes_by_name_and_heals_by_itself(tmp_path: Path) -> None:
    disk = Disk(bytes_before_error=20)
    with OpenLog(tmp_path, files=disk) as log:
        log.synced_write(1)
        disk.write_errors += [NO_SPACE] * 1000
        waiting = log.write(2)
        wait_until(lambda: log.writer.failure)
        with pytest.raises(StorageFull, match=r"No space left on device.*free space"):
            log.write(3)
        with pytest.raises(StorageFull, match="No space left on device"):
            log.writer.declare(CollectionState("new", b""))
        assert log.durable == [1]
        disk.write_errors.clear()
        log.await_durable(waiting)
        wait_until(lambda: log.writer.failure is None and log.reasons[-1] is None)
        after = log.synced_write(4)
    assert lsns_in(tmp_path) == [1, waiting, after]


@pytest.mark.parametrize("what", ["create_errors", "close_errors", "write_errors", "sync_errors"])
def test_a_segment_that_cannot_be_begun_is_begun_later(tmp_path: Path, what: str) -> None:
    disk = Disk()
    with OpenLog(tmp_path, files=disk) as log:
        first = log.synced_write(1)
        getattr(disk, what).extend([NO_SPACE, BROKEN])
        log.seal()
        wait_until(lambda: log.writer.failure is None)
        second = log.synced_write(2)
    assert [segment.last_lsn for segment in log.sealed if segment.last_lsns] == [first]
    assert lsns_in(tmp_path) == [first, second]


def test_closing_says_whether_everything_is_synced(tmp_path: Path) -> None:
    log, disk = held_log(tmp_path / "healthy")
    disk.let_go()
    assert log.writer.close(DEADLINE_SECONDS)

    log, disk = held_log(tmp_path / "failing")
    disk.sync_errors += [BROKEN] * 1000
    disk.let_go()
    wait_until(lambda: log.writer.failure)
    assert not log.writer.close(DEADLINE_SECONDS)

    log, disk = held_log(tmp_path / "slow")
    assert not log.writer.close(0.01)
    disk.let_go()


def test_a_closed_log_takes_nothing(tmp_path: Path) -> None:
    log = OpenLog(tmp_path)
    assert log.writer.close(DEADLINE_SECONDS)
    with pytest.raises(ServerUnavailable, match="shutting down"):
        log.write(1)
    with pytest.raises(ServerUnavailable, match="shutting down"):
        log.writer.declare(CollectionState("new", b""))


def test_a_log_that_fails_in_a_way_nobody_foresaw_takes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any) -> None:
        raise MemoryError

    log = OpenLog(tmp_path)
    log.synced_write(1)
    monkeypatch.setattr("headrace.wal.groups.frame_writes", out_of_memory)
    log.write(2)
    wait_until(lambda: log.writer.failure)
    with pytest.raises(StorageFull, match=r"MemoryError.*restart"):
        log.write(3)
    assert not log.writer.close(DEADLINE_SECONDS)
    assert log.durable == [1]


def test_a_log_that_was_never_started_can_be_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.wal.writer.LogWriter.start", lambda _: None)
    assert OpenLog(tmp_path).writer.close(DEADLINE_SECONDS)


# Segments.


def test_a_segment_is_handed_on_once_the_next_one_says_where_it_ends(tmp_path: Path) -> None:
    disk = Disk()
    log = OpenLog(tmp_path, files=disk)
    log.synced_write(1)
    disk.hold()
    log.writer.seal()
    assert disk.holding.wait(DEADLINE_SECONDS)
    assert log.sealed == []
    assert log.writer.open_segment[0] == segment_files(tmp_path)[0]
    disk.let_go()
    wait_until(lambda: log.sealed)
    wait_until(lambda: log.writer.open_segment[0] == segment_files(tmp_path)[1])
    log.writer.close(DEADLINE_SECONDS)
    [sealed] = log.sealed
    assert sealed == recover(tmp_path).segments[0]


def test_a_segment_without_writes_is_not_sealed(tmp_path: Path) -> None:
    with OpenLog(tmp_path, limits=LogLimits(segment_seconds=0.0)) as log:
        log.writer.seal()
        log.synced_write(1)
        wait_until(lambda: log.sealed)
    assert [segment.last_lsns for segment in log.sealed] == [{"orders": 1}]


def test_a_segment_with_only_a_collection_is_sealed(tmp_path: Path) -> None:
    with OpenLog(tmp_path, limits=LogLimits(segment_seconds=0.0)) as log:
        log.writer.declare(CollectionState("new", b""))
        wait_until(lambda: log.sealed)


def test_a_segment_is_sealed_by_its_size_whether_or_not_anybody_takes_it(tmp_path: Path) -> None:
    limits = LogLimits(segment_seconds=0.001, segment_bytes=2_000)
    with OpenLog(tmp_path, limits=limits, may_seal=lambda: False) as log:
        while not log.sealed:
            log.synced_write(*range(10))
    [sealed] = log.sealed
    assert 2_000 <= sealed.length < 4_000


def test_a_segment_waits_for_the_uploads_before_it(tmp_path: Path) -> None:
    is_idle = threading.Event()
    asked: list[bool] = []

    def may_seal() -> bool:
        asked.append(is_idle.is_set())
        return asked[-1]

    with OpenLog(tmp_path, limits=LogLimits(segment_seconds=0.001), may_seal=may_seal) as log:
        log.synced_write(1)
        wait_until(lambda: len(asked) > 3)
        assert log.sealed == []
        is_idle.set()
        wait_until(lambda: log.sealed)


def states_in(segments: list[Segment]) -> int:
    return sum(segment.has_state for segment in segments)


def test_a_small_state_stands_in_every_segment_and_a_large_one_in_few(tmp_path: Path) -> None:
    def write_and_seal(folder: Path, producers: int) -> list[Segment]:
        with OpenLog(folder) as log:
            for number in range(producers):
                stream = WriteStream("orders", SCHEMA_MESSAGE, f"producer-{number}")
                lsn = log.write(1, stream=stream, seq=1)
            log.await_durable(lsn)  # or some would be left for the segment after
            log.seal()
            for _ in range(40):
                log.synced_write(*range(100))
                log.seal()
        return recover(folder).segments

    few = write_and_seal(tmp_path / "few", 1)
    assert states_in(few[2:]) == len(few[2:])
    many = write_and_seal(tmp_path / "many", 500)
    state = map_segment(many[1].path)
    length = next(end for end, kind, _ in records_of(state) if kind is Kind.STATE)
    log_bytes = sum(segment.length for segment in many)
    assert 1 < states_in(many) <= 2 + log_bytes / (4 * length)
    assert recover(tmp_path / "many").state.producers.keys() == {
        ("orders", f"producer-{number}") for number in range(500)
    }


def test_producers_that_were_silent_for_long_are_left_out_of_the_state(tmp_path: Path) -> None:
    now = [1.0]
    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    with OpenLog(tmp_path, clock=clock) as log:
        log.recovered.state.committed["orders"] = Committed(2**62)
        log.synced_write(*range(100), stream=PRODUCER, seq=1)
        log.seal()
        segment = recover(tmp_path).segments[-1]
        assert segment.has_state
        for path in segment_files(tmp_path)[:-1]:
            path.unlink()
        assert len(recover(tmp_path).state.producers) == 1
        now[0] += PRODUCER_SILENCE_US / 1e6 + 1
        log.synced_write(*range(100))
        log.seal()
    for path in segment_files(tmp_path)[:-1]:
        path.unlink()
    assert recover(tmp_path).state.producers == {}


def test_how_large_a_state_is_can_be_told_without_writing_it() -> None:
    state = LogState(last_lsn=123_456, reserved_until=1_234_567)
    for number in range(50):
        state.declared(
            CollectionState(f"collection_{number}", bytes(1000 * number), ("/id",), {"a": "b" * 99})
        )
        state.committed[f"collection_{number}"] = Committed(number, 2**60)
        for producer in range(40):
            state.producers[f"collection_{number}", f"producer-{producer}"] = ProducerState(7, number, 2**50)
    assert state.about_bytes == pytest.approx(len(state.encode()), rel=0.2)
    assert LogState.from_json(orjson.loads(state.encode())) == state


def test_producers_are_aged_by_the_time_in_which_servers_ran(tmp_path: Path) -> None:
    """However long none ran, and whatever the clock on the wall says."""
    known: list[int] = []
    for start in range(6):
        now = [0.0]
        clock: Callable[[], float] = lambda now=now: now[0]  # type: ignore[misc]  # noqa: E731
        with OpenLog(tmp_path, clock=clock) as log:
            known.append(len(log.recovered.state.producers))
            log.recovered.state.committed["orders"] = Committed(2**62)
            if start == 0:
                log.synced_write(1, stream=PRODUCER, seq=1)
            now[0] += PRODUCER_SILENCE_US / 1e6 / 4
            log.synced_write(*range(2000))  # as much as it takes for a state
            log.seal()
    assert known == [0, 1, 1, 1, 1, 0]


def test_a_producer_of_a_state_without_an_uptime_counts_as_heard_of_now() -> None:
    state = LogState()
    state.producers["orders", "till-1"] = ProducerState(7, 70, 1_700_000_000_000_000)
    raw = orjson.loads(state.encode())
    del raw["uptime_us"]
    old = LogState.from_json(raw)
    old.uptime_us = PRODUCER_SILENCE_US
    old.committed["orders"] = Committed(70)
    assert old.without_silent().producers == {("orders", "till-1"): ProducerState(7, 70, 0)}
    old.uptime_us += 1
    assert old.without_silent().producers == {}


def test_a_state_says_how_far_anybody_may_have_been_forgotten() -> None:
    state = LogState(last_lsn=99, uptime_us=PRODUCER_SILENCE_US + 1, committed={"orders": Committed(70)})
    state.producers["orders", "silent"] = ProducerState(7, 70, 0)
    state.producers["orders", "not committed"] = ProducerState(7, 71, 0)
    state.producers["orders", "heard of"] = ProducerState(7, 60, 1)
    left = state.without_silent()
    assert ([name for _, name in left.producers], left.forgotten_lsn) == (["not committed", "heard of"], 70)
    assert (len(state.producers), state.forgotten_lsn) == (3, 0)
    raw = orjson.loads(left.encode())
    assert LogState.from_json(raw).forgotten_lsn == 70
    del raw["forgotten_lsn"]  # as an older server wrote it
    assert LogState.from_json(raw).forgotten_lsn == 99


def test_a_producer_is_forgotten_only_once_the_disk_knows(tmp_path: Path) -> None:
    now = [1.0]
    disk = Disk()
    with OpenLog(tmp_path, files=disk, clock=lambda: now[0]) as log:
        state = log.recovered.state
        log.synced_write(1, stream=PRODUCER, seq=1)
        state.committed["orders"] = Committed(1)
        now[0] += PRODUCER_SILENCE_US / 1e6 + 1
        log.synced_write(*range(2000))  # as much as it takes for a state
        disk.hold()
        log.writer.seal()
        assert disk.holding.wait(DEADLINE_SECONDS)
        assert state.producers
        disk.let_go()
        wait_until(lambda: not state.producers)
        assert state.forgotten_lsn == 1


def test_a_disk_that_fails_at_the_start_is_named_in_one_sentence(tmp_path: Path) -> None:
    disk = Disk()
    disk.sync_errors = [BROKEN]
    with pytest.raises(Terminal, match=r"the disk of .* refuses writes \(Input/output error\): free space"):
        OpenLog(tmp_path, files=disk)
