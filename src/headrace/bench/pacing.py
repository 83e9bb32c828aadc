"""Sends at a steady rate, and remembers when each send was due.

An open loop: a send's time is on a schedule that was fixed at the start, and does not wait for answers. One
that is late is followed by the next at once. Latencies count from the schedule, so that a delay shows in all
the writes that it held up and not only in the first (what is called coordinated omission).
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from headrace.bench.figures import Array

clock = time.perf_counter

T = TypeVar("T")


@dataclass(frozen=True)
class Sent:
    started: float
    due: Array
    """When each was due."""
    late: Array
    """How much later each was sent."""


def send_all(
    send: Callable[[T], object],
    items: Sequence[T],
    count: int,
    rate: float,
    now: Callable[[], float] = clock,
    sleep: Callable[[float], object] = time.sleep,
) -> Sent:
    """Sends `count` times, the items in turns, at so many a second."""
    started = now()
    interval = 1 / rate
    late = array("d", bytes(8 * count))
    size = len(items)
    for number in range(count):
        due = started + number * interval
        behind = now() - due
        if behind < 0:
            sleep(-behind)
            behind = now() - due
        late[number] = behind
        send(items[number % size])
    return Sent(started, started + np.arange(count) * interval, np.frombuffer(late))
