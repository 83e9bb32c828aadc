"""The open loop."""

from __future__ import annotations

import time

import numpy as np

from headrace.bench.pacing import send_all


def test_items_are_sent_in_turns_at_any_rate() -> None:
    for rate in (None, 100_000.0):
        sent: list[str] = []
        send_all(sent.append, ["a", "b", "c"], 8, rate)
        assert "".join(sent) == "abcabcab"


def test_nothing_is_sent_before_it_is_due() -> None:
    times: list[float] = []
    sent = send_all(lambda _: times.append(time.perf_counter()), [0], 50, 1000.0)
    assert sent.due is not None
    assert (np.array(times) >= sent.due).all()
    assert np.allclose(np.diff(sent.due), 0.001)


def test_a_delay_counts_for_every_write_that_it_held_up() -> None:
    def send(number: int) -> None:
        if number == 0:
            time.sleep(0.05)

    sent = send_all(send, list(range(20)), 20, 1000.0)
    assert sent.due is not None
    assert sent.late is not None
    # The schedule goes on during the 50 ms, so the writes after it are late by what is left of them.
    assert np.allclose(np.diff(sent.due), 0.001)
    assert (sent.late[1:] > 0.05 - 0.001 * np.arange(1, 20) - 1e-6).all()
