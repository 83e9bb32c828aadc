"""How a session's writes are told of: modes, filters, and clients that do not listen."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from headrace.ingest.acks import ACK_SCHEMA, MOST_ROWS
from headrace.ingest.announcer import Announcer
from headrace.ingest.options import Options, options_of
from headrace.ingest.producers import Run
from headrace.ingest.progress import Progress
from headrace.ingest.statistics import Statistics
from headrace.model.tiers import Tier
from tests.waiting import DEADLINE_SECONDS, wait_until

MEMORY, LOCAL_DISK, OBJECT_STORAGE, COMMITTED = (tier.name for tier in Tier)


@dataclass
class Client:
    """Gets what an announcer writes."""

    batches: list[tuple[pa.RecordBatch | None, dict[str, Any] | None]] = field(default_factory=list)
    error: Exception | None = None
    writing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._reads = threading.Event()
        self._reads.set()

    def stop_reading(self) -> None:
        self._reads.clear()

    def read_again(self) -> None:
        self._reads.set()

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._write(batch, None)

    def write_metadata(self, metadata: bytes) -> None:
        self._write(None, json.loads(metadata))

    def write_with_metadata(self, batch: pa.RecordBatch, metadata: bytes) -> None:
        self._write(batch, json.loads(metadata))

    def _write(self, batch: pa.RecordBatch | None, metadata: dict[str, Any] | None) -> None:
        self.writing.set()
        assert self._reads.wait(DEADLINE_SECONDS)
        if self.error:
            raise self.error
        if batch is not None:
            batch.validate(full=True)
            assert batch.schema == ACK_SCHEMA
        self.batches.append((batch, metadata))

    def rows(self) -> list[tuple[int, str, bool]]:
        batches = [batch.select(range(3)) for batch, _ in list(self.batches) if batch is not None]
        return [row for batch in batches for row in zip(*batch.to_pydict().values(), strict=True)]

    def lsns(self, level: str) -> list[int]:
        return [lsn for lsn, of, _ in self.rows() if of == level]


class Desk:
    """Progress with announcers, each with a client."""

    def __init__(self) -> None:
        self.progress = Progress(0, 0, {})
        self.announcers: list[Announcer] = []

    def open(self, options: dict[str, Any] | None = None) -> tuple[Announcer, Client]:
        client = Client()
        chosen = Options() if options is None else options_of(options)
        announcer = Announcer("orders", chosen, client, self.progress, Statistics())
        announcer.start()
        self.announcers.append(announcer)
        return announcer, client


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    for announcer in desk.announcers:
        announcer.stop()
        announcer.join(DEADLINE_SECONDS)


def advance_all(progress: Progress, lsn: int, snapshot_id: int = 1) -> None:
    progress.advance(Tier.LOCAL_DISK, lsn)
    progress.advance(Tier.OBJECT_STORAGE, lsn)
    progress.advance_committed("orders", lsn, snapshot_id)


def finish(announcer: Announcer) -> None:
    announcer.finish()
    assert announcer.join(DEADLINE_SECONDS)


def test_each_write_is_told_of_once_at_each_tier(desk: Desk) -> None:
    announcer, client = desk.open()
    announcer.wrote(5, 3, 0)
    wait_until(lambda: len(client.rows()) == 3)
    assert client.rows() == [(lsn, MEMORY, False) for lsn in (5, 6, 7)]
    desk.progress.advance(Tier.LOCAL_DISK, 6)
    wait_until(lambda: len(client.rows()) == 5)
    advance_all(desk.progress, 7)
    finish(announcer)
    for level in (LOCAL_DISK, OBJECT_STORAGE, COMMITTED):
        assert client.lsns(level) == [5, 6, 7]
    assert all(is_update == (level != MEMORY) for _, level, is_update in client.rows())


def test_only_the_levels_that_were_asked_for_are_told(desk: Desk) -> None:
    announcer, client = desk.open({"levels": ["OBJECT_STORAGE"]})
    announcer.wrote(1, 2, 0)
    desk.progress.advance(Tier.LOCAL_DISK, 2)
    desk.progress.advance(Tier.OBJECT_STORAGE, 2)
    finish(announcer)
    assert [(lsn, level) for lsn, level, _ in client.rows()] == [(1, OBJECT_STORAGE), (2, OBJECT_STORAGE)]


def test_nothing_is_told_of_writes_above_the_watermark(desk: Desk) -> None:
    announcer, client = desk.open()
    announcer.wrote(1, 10, 0)
    desk.progress.advance(Tier.LOCAL_DISK, 4)
    announcer.stop()
    announcer.join()
    assert client.lsns(LOCAL_DISK) == [1, 2, 3, 4]
    assert client.lsns(OBJECT_STORAGE) == []


def test_committed_comes_in_one_message_for_each_snapshot(desk: Desk) -> None:
    announcer, client = desk.open({"levels": ["COMMITTED"]})
    client.stop_reading()
    announcer.say({"so": "that it waits in a write"})
    assert client.writing.wait(DEADLINE_SECONDS)
    for first in (1, 4):
        announcer.wrote(first, 2, 0)
    desk.progress.advance_committed("orders", 2, 71)
    desk.progress.advance_committed("orders", 3, 72)
    desk.progress.advance_committed("orders", 5, 73)
    client.read_again()
    finish(announcer)
    told = [(batch.column("lsn").to_pylist(), said) for batch, said in client.batches if batch is not None]
    assert told == [([1, 2], {"snapshot_id": 71}), ([4, 5], {"snapshot_id": 73})]


@pytest.mark.parametrize("acks", ["per-lsn", "watermark"])
@pytest.mark.parametrize("ending", ["finish", "stop"])
def test_more_rows_than_a_message_has_are_told_of_at_once(desk: Desk, acks: str, ending: str) -> None:
    announcer, client = desk.open({"acks": acks})
    count = 3 * MOST_ROWS + 7
    client.stop_reading()
    announcer.say({"so": "that it waits in a write"})
    assert client.writing.wait(DEADLINE_SECONDS)
    for first in range(1, count + 1, 1000):
        announcer.wrote(first, min(1000, count + 1 - first), 0)
    advance_all(desk.progress, count)
    getattr(announcer, ending)()
    client.read_again()
    assert announcer.join(DEADLINE_SECONDS)
    for tier in Tier:
        told = client.lsns(tier.name)
        assert told == (list(range(1, count + 1)) if acks == "per-lsn" else [count])
        assert announcer.pending(tier) == 0
    assert max(batch.num_rows for batch, _ in client.batches if batch is not None) <= 3 * MOST_ROWS


def test_a_watermark_stands_for_all_below_it_whatever_was_sent_again(desk: Desk) -> None:
    announcer, client = desk.open({"acks": "watermark", "producer": "a"})
    client.stop_reading()
    announcer.say({"so": "that it waits in a write"})
    assert client.writing.wait(DEADLINE_SECONDS)
    announcer.wrote(100, 10, 50)
    announcer.wrote_before([Run(1, 30, 5)])
    advance_all(desk.progress, 109)
    client.read_again()
    finish(announcer)
    for tier in Tier:
        assert max(client.lsns(tier.name)) == 109
    for batch, _ in client.batches:
        if batch is not None:
            levels = batch.column("durability_level").to_pylist()
            assert len(levels) == len(set(levels))


def test_a_watermark_of_each_snapshot_is_told(desk: Desk) -> None:
    announcer, client = desk.open({"acks": "watermark", "levels": ["COMMITTED"]})
    client.stop_reading()
    announcer.say({"so": "that it waits in a write"})
    assert client.writing.wait(DEADLINE_SECONDS)
    announcer.wrote(1, 5, 0)
    desk.progress.advance_committed("orders", 2, 71)
    desk.progress.advance_committed("orders", 5, 72)
    client.read_again()
    finish(announcer)
    told = [(batch.column("lsn").to_pylist(), said) for batch, said in client.batches if batch is not None]
    assert told == [([2], {"snapshot_id": 71}), ([5], {"snapshot_id": 72})]


def test_sequence_numbers_are_told_with_the_first_acknowledgement(desk: Desk) -> None:
    announcer, client = desk.open({"producer": "a"})
    announcer.wrote(10, 2, 5)
    wait_until(lambda: client.lsns(MEMORY) == [10, 11])
    batch, said = client.batches[0]
    assert batch is not None
    assert said == {"assigned": [[5, 10, 2]]}


def test_sequence_numbers_come_alone_if_the_first_acknowledgement_is_not_wanted(desk: Desk) -> None:
    announcer, client = desk.open({"producer": "a", "levels": ["LOCAL_DISK"]})
    desk.progress.advance(Tier.LOCAL_DISK, 11)
    announcer.wrote(10, 2, 5)
    finish(announcer)
    assert client.batches[0] == (None, {"assigned": [[5, 10, 2]]})
    assert client.lsns(LOCAL_DISK) == [10, 11]


def test_what_is_sent_again_is_told_of_at_the_tiers_that_it_has(desk: Desk) -> None:
    desk.progress.advance(Tier.LOCAL_DISK, 50)
    announcer, client = desk.open({"producer": "a"})
    announcer.wrote_before([Run(1, 0, 3), Run(4, 40, 2)])  # of the first three nothing is remembered
    wait_until(lambda: client.lsns(LOCAL_DISK) == [40, 41])
    assert client.lsns(MEMORY) == [40, 41]
    assert client.batches[0][1] == {"assigned": [[1, 0, 3], [4, 40, 2]]}
    advance_all(desk.progress, 50)
    finish(announcer)
    assert client.lsns(COMMITTED) == [40, 41]


def test_resuming_tells_of_every_tier_but_the_first(desk: Desk) -> None:
    advance_all(desk.progress, 8)
    announcer, client = desk.open({"producer": "a", "resume_after": 5})
    announcer.resume([Run(1, 6, 5)])
    wait_until(lambda: client.lsns(COMMITTED) == [6, 7, 8])
    advance_all(desk.progress, 10)
    announcer.wrote(11, 1, 6)
    advance_all(desk.progress, 11)
    finish(announcer)
    assert client.lsns(COMMITTED) == [6, 7, 8, 9, 10, 11]
    assert client.lsns(MEMORY) == [11]


def test_a_client_that_sent_no_options_gets_no_message_without_a_batch(desk: Desk) -> None:
    announcer, client = desk.open()
    announcer.say({"throttled": "reason"})
    announcer.wrote(1, 1, 0)
    wait_until(lambda: client.batches)
    assert client.batches[0][1] is None


def test_a_client_that_does_not_read_holds_up_nobody(desk: Desk) -> None:
    deaf, its_client = desk.open()
    its_client.stop_reading()
    deaf.wrote(1, 1, 0)
    assert its_client.writing.wait(DEADLINE_SECONDS)
    announcer, client = desk.open()
    announcer.wrote(2, 5, 0)
    advance_all(desk.progress, 10)
    finish(announcer)
    assert client.lsns(COMMITTED) == [2, 3, 4, 5, 6]
    assert its_client.batches == []
    its_client.read_again()


@pytest.mark.parametrize(
    "error",
    [flight.FlightCancelledError("gone"), OSError("gone"), pa.ArrowInvalid("gone"), RuntimeError("a defect")],
    ids=lambda error: type(error).__name__,
)
def test_a_dead_client_ends_the_thread(desk: Desk, error: Exception) -> None:
    announcer, client = desk.open()
    client.error = error
    announcer.wrote(1, 1, 0)
    assert announcer.join(DEADLINE_SECONDS)
    assert announcer.is_broken


def test_an_announcer_that_is_forgotten_is_not_woken(desk: Desk) -> None:
    announcer, _ = desk.open()
    assert list(desk.progress.listeners) == [announcer]
    announcer.forget()
    assert list(desk.progress.listeners) == []
