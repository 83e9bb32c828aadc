"""What is remembered of producers, against a model that remembers everything."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.ingest import producers as producers_module
from headrace.ingest.producers import Producer, Producers, Run
from headrace.wal.state import PRODUCER_SILENCE_US, LogState, ProducerState


class Step(NamedTuple):
    seqs_left_out: int
    lsns_of_others: int
    writes: int


steps = st.lists(st.builds(Step, st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), max_size=20)


def write(steps: list[Step]) -> tuple[Producer, dict[int, int]]:
    """A producer, and which LSN each of its sequence numbers got."""
    producer = Producer()
    lsns: dict[int, int] = {}
    seq = lsn = 1
    for step in steps:
        seq, lsn = seq + step.seqs_left_out, lsn + step.lsns_of_others
        producer.wrote(seq, lsn, step.writes, 0)
        lsns.update(zip(range(seq, seq + step.writes), range(lsn, lsn + step.writes), strict=True))
        seq, lsn = seq + step.writes, lsn + step.writes
    return producer, lsns


def spread(runs: list[Run]) -> dict[int, int]:
    return {run.seq + n: run.lsn + n if run.lsn else 0 for run in runs for n in range(run.count)}


@given(steps, st.integers(1, 60), st.integers(1, 20), st.integers(0, 100))
def test_what_was_written_is_found_and_what_was_left_out_or_forgotten_is_zero(
    steps: list[Step], seq: int, count: int, committed: int
) -> None:
    producer, lsns = write(steps)
    assert producer.last_seq == max(lsns, default=0)
    assert spread(producer.find(seq, count)) == {n: lsns.get(n, 0) for n in range(seq, seq + count)}
    producer.forget_until(committed)
    for number, lsn in spread(producer.find(seq, count)).items():
        assert lsn == lsns.get(number, 0) or (lsn == 0 and lsns[number] <= committed)
    assert producer.last_seq == max(lsns, default=0)
    if lsns:
        assert spread(producer.find(producer.last_seq, 1)) == {producer.last_seq: lsns[producer.last_seq]}


@given(steps, st.integers(1, 60), st.integers(1, 20), st.integers(0, 100))
def test_what_was_left_out_is_told_from_what_was_forgotten(
    steps: list[Step], seq: int, count: int, committed: int
) -> None:
    producer, lsns = write(steps)
    producer.forget_until(committed)
    first = producer.runs[0].seq if producer.runs else producer.last_seq + 1
    wanted = [n for n in range(seq, seq + count) if first <= n <= producer.last_seq and n not in lsns]
    known = min(max(producer.last_seq - seq + 1, 0), count)
    assert producer.left_out(seq, known) == (wanted[0] if wanted else None)


@given(steps, st.integers(0, 100))
def test_resuming_tells_of_all_that_came_after(steps: list[Step], lsn: int) -> None:
    producer, lsns = write(steps)
    assert spread(producer.after(lsn)) == {seq: at for seq, at in lsns.items() if at > lsn}


def test_neighbours_are_one_run() -> None:
    producer = Producer()
    for number in range(1, 1001):
        producer.wrote(number, number + 50, 1, 0)
    assert producer.runs == [Run(1, 51, 1000)]


def test_the_oldest_runs_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_module, "_MOST_RUNS", 10)
    producer = Producer()
    for number in range(1, 101):
        producer.wrote(number, number * 2, 1, 0)
    assert len(producer.runs) <= 10
    assert spread(producer.find(100, 1)) == {100: 200}
    assert spread(producer.find(1, 1)) == {1: 0}


def test_a_restart_knows_the_last_number_and_the_runs_that_the_log_has() -> None:
    state = LogState(
        producers={("orders", "a"): ProducerState(9, 90, 0), ("orders", "b"): ProducerState(3, 4, 0)}
    )
    producers = Producers(state)
    producers.recovered("orders", "a", [Run(5, 80, 2), Run(7, 88, 3)])
    first = producers.take_over("orders", "a", object())
    assert (first.last_seq, spread(first.find(4, 6))) == (9, {4: 0, 5: 80, 6: 81, 7: 88, 8: 89, 9: 90})
    second = producers.take_over("orders", "b", object())
    assert (second.last_seq, spread(second.find(3, 1))) == (3, {3: 4})
    assert producers.take_over("others", "a", object()).last_seq == 0


def test_a_commit_concerns_the_producers_of_its_collection() -> None:
    producers = Producers(LogState())
    for collection in ("orders", "others"):
        producer = producers.take_over(collection, "a", object())
        producer.wrote(1, 1, 1, 0)
        producer.wrote(5, 5, 1, 0)
    producers.committed("orders", 1)
    assert spread(producers.take_over("orders", "a", object()).find(1, 1)) == {1: 0}
    assert spread(producers.take_over("others", "a", object()).find(1, 1)) == {1: 1}


def test_a_producer_is_forgotten_after_a_long_silence_but_never_under_its_session() -> None:
    producers = Producers(LogState())
    held = producers.take_over("orders", "held", object())
    left = producers.take_over("orders", "left", object())
    for producer in (held, left):
        producer.wrote(1, 1, 1, 0)
    left.holder = None
    producers.forget_silent(PRODUCER_SILENCE_US, lambda _: False)
    assert len(producers) == 2
    producers.forget_silent(PRODUCER_SILENCE_US + 1, lambda _: True)
    assert (len(producers), producers.forgotten_lsn) == (2, 0)
    producers.forget_silent(PRODUCER_SILENCE_US + 1, lambda _: False)
    assert (len(producers), producers.forgotten_lsn) == (1, 1)
    assert producers.take_over("orders", "held", object()) is held


def test_one_that_was_forgotten_begins_anew() -> None:
    producers = Producers(LogState(producers={("orders", "a"): ProducerState(3, 93, 0)}))
    producers.recovered("orders", "a", [Run(96, 6, 5), Run(1, 91, 3)])
    producer = producers.take_over("orders", "a", object())
    assert (producer.last_seq, spread(producer.find(1, 3))) == (3, {1: 91, 2: 92, 3: 93})
