"""What gathers while the intake is busy becomes one message of the log, write by write as it came."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import StorageFull, Terminal, UnexpectedFailure
from headrace.ingest import intake as module
from headrace.ingest import session as session_module
from headrace.ingest.intake import Intake, Message, Source
from headrace.ingest.producers import Producer, Run
from headrace.ingest.statistics import Statistics
from headrace.wal.groups import Entry, WriteStream
from headrace.wal.state import PRODUCER_SILENCE_US
from headrace.wal.writer import LogWriter
from tests.ingest.support import FakeIceberg, LocalSession, batch, running_engine
from tests.waiting import DEADLINE_SECONDS, wait_until

STREAM = WriteStream("orders", b"")


class Log:
    """Gives out numbers; waits while it is held, and refuses while there is a reason to."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.problem: Exception | None = None
        self.attempts = 0
        self.next_lsn = 1
        self.room = 1_000
        self.uptime_us = 0
        self.holding = threading.Event()
        self.open = threading.Event()
        self.open.set()

    def append(self, entry: Entry) -> int:
        self.attempts += 1
        if not self.open.is_set():
            self.holding.set()
            assert self.open.wait(DEADLINE_SECONDS)
        if self.problem is not None:
            raise self.problem
        self.entries.append(entry)
        lsn, self.next_lsn = self.next_lsn, self.next_lsn + entry.count
        return lsn

    def ids(self) -> list[list[int]]:
        """Of the rows of each message."""
        schema = batch(0).schema
        return [pa.ipc.read_record_batch(one.message, schema)["id"].to_pylist() for one in self.entries]


class Announcements:
    def __init__(self) -> None:
        self.wrote_calls: list[tuple[int, int, int]] = []
        self.before: list[Run] = []

    def wrote(self, first: int, count: int, seq: int) -> None:
        self.wrote_calls.append((first, count, seq))

    def wrote_before(self, runs: list[Run]) -> None:
        self.before += runs


class Fixture:
    def __init__(self) -> None:
        self.log = Log()
        self.fatal: list[Terminal] = []
        log: Any = self.log
        self.intake = Intake(log, self.fatal.append)
        self.intake.start()

    def source(self, producer: Producer | None = None) -> Source:
        announcer: Any = Announcements()
        return Source(STREAM, producer, announcer, Statistics())

    def put(self, source: Source, *ids: int, rows: list[int] | None = None, seq: int = 0) -> None:
        self.intake.put(source, Message(batch(*ids), rows, seq, 8 * len(ids), time.perf_counter()))

    def hold(self, source: Source, seq: int = 0) -> None:
        """Keeps the intake busy with a write, so that what follows gathers."""
        self.log.open.clear()
        self.put(source, 0, seq=seq)
        assert self.log.holding.wait(DEADLINE_SECONDS)

    def settle(self) -> None:
        self.log.open.set()
        assert self.intake.mark().wait(DEADLINE_SECONDS)


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    made = Fixture()
    yield made
    made.log.open.set()
    made.intake.close(DEADLINE_SECONDS)


def test_what_gathered_is_one_message_of_many_writes(fixture: Fixture) -> None:
    source = fixture.source()
    fixture.hold(source)
    fixture.put(source, 1)
    fixture.put(source, 2, 3)
    fixture.put(source, 4, 5, 6, rows=[1, 2])
    fixture.settle()
    assert fixture.log.ids() == [[0], [1, 2, 3, 4, 5, 6]]
    assert [entry.rows for entry in fixture.log.entries] == [None, [1, 2, 1, 2]]
    announcer: Any = source.announcer
    assert announcer.wrote_calls == [(1, 1, 0), (2, 4, 0)]
    assert (source.statistics.writes, source.statistics.rows, source.last_lsn) == (5, 7, 5)
    assert list(source.unsynced) == [(1, 8), (5, 48)]


def test_what_waits_for_the_log_counts_as_waiting_for_the_disk(fixture: Fixture) -> None:
    source = fixture.source()
    fixture.log.room = 20
    fixture.hold(source)
    fixture.put(source, 1)
    assert not fixture.intake.is_full
    fixture.put(source, 2)
    assert fixture.intake.is_full
    fixture.settle()
    assert not fixture.intake.is_full


def test_streams_are_not_mixed(fixture: Fixture) -> None:
    one, other = fixture.source(), fixture.source()
    fixture.hold(one)
    for number in (1, 2):
        fixture.put(one, number)
        fixture.put(other, 10 * number)
    fixture.settle()
    assert sorted(fixture.log.ids()) == [[0], [1, 2], [10, 20]]


def test_large_messages_stay_as_they_are(fixture: Fixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_JOINED_BYTES", 20)
    source = fixture.source()
    fixture.hold(source)
    for ids in ((1,), (2,), (3, 4, 5), (6,)):
        fixture.put(source, *ids)
    fixture.settle()
    assert fixture.log.ids() == [[0], [1, 2], [3, 4, 5], [6]]


def test_numbers_that_do_not_follow_are_not_joined(fixture: Fixture) -> None:
    producer = Producer()
    source = fixture.source(producer)
    fixture.hold(source, seq=1)
    fixture.put(source, 2, seq=2)
    fixture.put(source, 3, seq=3)
    fixture.put(source, 7, seq=7)
    fixture.settle()
    assert fixture.log.ids() == [[0], [2, 3], [7]]
    assert [entry.seq for entry in fixture.log.entries] == [1, 2, 7]
    assert producer.runs == [Run(1, 1, 3), Run(7, 4, 1)]


def test_a_number_that_was_left_out_is_not_taken_for_one_that_was_written(fixture: Fixture) -> None:
    producer = Producer()
    source = fixture.source(producer)
    for seq in (1, 3):
        fixture.put(source, seq, seq=seq)
        fixture.settle()
    fixture.put(source, 2, seq=2)
    fixture.settle()
    announcer: Any = source.announcer
    assert (fixture.log.ids(), announcer.before) == ([[1], [3]], [])
    assert source.refusal is not None
    assert source.refusal.message == (
        "sequence number 2 of producer '' was left out, and 3 is written already: numbers only go up; write "
        "it with a new number"
    )


def test_a_number_that_comes_twice_at_once_is_written_once(fixture: Fixture) -> None:
    producer = Producer()
    source = fixture.source(producer)
    fixture.hold(source, seq=1)
    fixture.put(source, 2, 3, rows=[1, 1], seq=2)
    fixture.put(source, 2, 3, 4, rows=[1, 1, 1], seq=2)
    fixture.put(source, 4, seq=4)
    fixture.settle()
    assert fixture.log.ids() == [[0], [2, 3], [4]]
    assert producer.last_seq == 4
    announcer: Any = source.announcer
    assert announcer.before == [Run(2, 2, 2), Run(4, 4, 1)]
    assert source.statistics.duplicates == 3
    assert sum(size for _, size in source.unsynced) == 8 + 16 + 24 + 8


def test_a_full_disk_is_waited_for(fixture: Fixture) -> None:
    producer = Producer()
    source = fixture.source(producer)
    fixture.log.problem = StorageFull("no space left")
    fixture.put(source, 1, seq=1)
    wait_until(lambda: fixture.log.attempts > 1)
    assert producer.lock.acquire(timeout=DEADLINE_SECONDS), "which those want who make room on the disk"
    producer.lock.release()
    announcer: Any = source.announcer
    assert announcer.wrote_calls == []
    fixture.log.problem = None
    fixture.settle()
    assert fixture.log.ids() == [[1]]
    assert not fixture.fatal


def test_what_was_put_before_the_end_is_written(fixture: Fixture) -> None:
    source = fixture.source()
    fixture.hold(source)
    fixture.put(source, 1)
    closing = threading.Thread(target=fixture.intake.close, args=[DEADLINE_SECONDS])
    closing.start()
    wait_until(lambda: fixture.intake._closing)
    fixture.log.open.set()
    closing.join(DEADLINE_SECONDS)
    assert fixture.log.ids() == [[0], [1]]


def test_data_that_cannot_be_written_is_its_sources_trouble_alone(fixture: Fixture) -> None:
    one, other = fixture.source(), fixture.source()
    fixture.hold(one)
    fixture.put(one, 1)
    unlike = pa.record_batch({"name": ["x"]})  # which cannot be joined
    fixture.intake.put(one, Message(unlike, None, 0, 8, time.perf_counter()))
    fixture.put(other, 2)
    fixture.settle()
    fixture.put(one, 3)
    fixture.settle()
    assert isinstance(one.refusal, UnexpectedFailure)
    assert fixture.log.ids() == [[0], [2]], "nothing comes after a gap"
    assert not other.refusal
    assert not fixture.fatal
    assert not fixture.intake._queued_bytes


def test_what_is_refused_while_it_waits_for_the_disk_is_not_written_when_it_heals(fixture: Fixture) -> None:
    """Its client has heard of an error, and would write it again."""
    source, other = fixture.source(), fixture.source()
    fixture.log.problem = StorageFull("no space left")
    fixture.put(source, 1)
    wait_until(lambda: fixture.log.attempts > 1)
    fixture.put(source, 2)
    fixture.put(other, 3)
    source.refusal = fixture.log.problem
    fixture.log.problem = None
    fixture.settle()
    assert fixture.log.ids() == [[3]]


def test_a_disk_that_heals_while_the_server_stops_leaves_no_gap(fixture: Fixture) -> None:
    """Or the producer would hear of its last number, and never send what is missing before it."""
    producer = Producer()
    source = fixture.source(producer)
    fixture.log.problem = StorageFull("no space left")
    fixture.put(source, 1, seq=1)
    wait_until(lambda: fixture.log.attempts > 1)
    fixture.put(source, 2, seq=5)
    fixture.intake._closing = True
    wait_until(lambda: source.refusal is not None)
    fixture.log.problem = None
    fixture.intake.close(DEADLINE_SECONDS)
    assert fixture.log.entries == []
    assert producer.last_seq == 0


def test_a_producer_is_not_forgotten_while_its_writes_are_on_the_way(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, let_go = threading.Event(), threading.Event()
    append = LogWriter.append

    def hesitant(self: LogWriter, entry: Entry) -> int:
        held.set()
        assert let_go.wait(DEADLINE_SECONDS)
        return append(self, entry)

    monkeypatch.setattr(LogWriter, "append", hesitant)
    options = {"producer": "p"}
    with running_engine(tmp_path) as engine:
        engine._log._uptime_before_us += 2 * PRODUCER_SILENCE_US
        with LocalSession(engine, options=options) as before:
            before.send(batch(1), seq=1)
            assert held.wait(DEADLINE_SECONDS)
        engine._producers.forget_silent(engine._log.uptime_us, lambda _: False)
        let_go.set()
        with LocalSession(engine, options=options) as after:
            assert after.greeting["last_seq"] == 1


def test_a_dictionary_counts_as_what_it_stands_for(tmp_path: Path, iceberg: FakeIceberg) -> None:
    text = "x" * 10_000
    names = pa.DictionaryArray.from_arrays(pa.array([0] * 1_000, pa.int32()), pa.array([text]))
    with running_engine(tmp_path) as engine, LocalSession(engine) as session:
        session.send(pa.record_batch({"name": names}))
        session.send(pa.record_batch({"name": names}))
        wait_until(lambda: len(session.lsns("MEMORY")) == 2)
        assert engine.sessions()[0]._unsynced_bytes > 2 * 1_000 * len(text)


def test_who_takes_over_hears_of_what_the_holder_before_was_let_write(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new process counts on from the last number it hears of; its write would pass for one of the old."""
    held, let_go = threading.Event(), threading.Event()
    append = LogWriter.append

    def hesitant(self: LogWriter, entry: Entry) -> int:
        held.set()
        assert let_go.wait(DEADLINE_SECONDS)
        return append(self, entry)

    options = {"producer": "p"}
    with running_engine(tmp_path) as engine:
        with LocalSession(engine) as somebody, LocalSession(engine, options=options) as before:
            before.write(1, seq=1)
            monkeypatch.setattr(LogWriter, "append", hesitant)
            somebody.send(batch(0))
            assert held.wait(DEADLINE_SECONDS)
            before.send(batch(2), seq=2)
            wait_until(lambda: bool(engine._intake._queue))
            with LocalSession(engine, options=options) as after:
                wait_until(lambda: len(engine._intake._queue) == 2, "somebody who waits behind the write")
                assert after.messages == []
                let_go.set()
                assert after.greeting["last_seq"] == 2
        assert engine.statistics().writes == 3


def test_a_stream_of_which_not_all_was_written_does_not_end_well(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serialize_badly(*_: object) -> int:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(session_module, "_SETTLE_SECONDS", DEADLINE_SECONDS)
    with running_engine(tmp_path) as engine, LocalSession(engine) as session:
        lsn = session.write(1)
        monkeypatch.setattr(Intake, "_append", serialize_badly)
        session.send(batch(2))
        session.done()
        assert "a mistake of ours" in str(session.error)
        assert session.lsns("LOCAL_DISK") == [lsn], "what was written before is acknowledged first"
