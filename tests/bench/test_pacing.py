"""The open loop, driven by the test's own clock."""

from __future__ import annotations

import numpy as np

from headrace.bench.pacing import send_all


class Clock:
    """A clock that advances only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def test_items_are_sent_in_turns() -> None:
    sent: list[str] = []
    clock = Clock()
    send_all(sent.append, ["a", "b", "c"], 8, 100_000.0, clock, clock.sleep)
    assert "".join(sent) == "abcabcab"


def test_nothing_is_sent_before_it_is_due() -> None:
    clock = Clock()
    times: list[float] = []
    sent = send_all(lambda _: times.append(clock.now), [0], 50, 1000.0, clock, clock.sleep)
    assert np.allclose(times, sent.due)
    assert np.allclose(np.diff(sent.due), 0.001)


def test_a_delay_counts_for_every_write_that_it_held_up() -> None:
    clock = Clock()

    def send(number: int) -> None:
        if number == 0:
            clock.now += 0.05

    sent = send_all(send, list(range(60)), 60, 1000.0, clock, clock.sleep)
    # The schedule goes on during the 50 ms, so the writes after it are late by what is left of them.
    assert np.allclose(np.diff(sent.due), 0.001)
    assert np.allclose(sent.late[1:], np.maximum(0.05 - 0.001 * np.arange(1, 60), 0.0))
