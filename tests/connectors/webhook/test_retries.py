"""How long a request is tried again, by a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from headrace.connectors.webhook.retries import LONGEST_PAUSE, TryAgain, parse_retry_after
from headrace.errors import EndpointUnavailable
from tests.connectors.webhook.clock import Clock


def failing(times: int, after: float = 0.0) -> Callable[[], None]:
    left = times

    def attempt() -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise TryAgain("it is down", after)

    return attempt


def test_pauses_double_up_to_a_limit() -> None:
    clock = Clock()
    clock.retries(1000).run(failing(10))
    assert clock.pauses == [0.25, 0.5, 1, 2, 4, 8, 16, LONGEST_PAUSE, LONGEST_PAUSE, LONGEST_PAUSE]


def test_chance_halves_them_at_most() -> None:
    clock = Clock(chance=0.0)
    clock.retries(1000).run(failing(3))
    assert clock.pauses == [0.125, 0.25, 0.5]


def test_the_receivers_wish_outranks_a_shorter_pause() -> None:
    clock = Clock()
    clock.retries(60).run(failing(2, after=7))
    assert clock.pauses == [7, 7]
    clock = Clock()
    clock.retries(60).run(failing(3, after=0.3))
    assert clock.pauses == [0.3, 0.5, 1]


def test_it_is_given_up_when_the_time_is_over() -> None:
    clock = Clock()
    with pytest.raises(EndpointUnavailable, match=r"it is down, and was tried 6 times within the 10 s"):
        clock.retries(10).run(failing(100))
    assert sum(clock.pauses) <= 10


def test_without_time_there_is_one_try() -> None:
    clock = Clock()
    with pytest.raises(EndpointUnavailable, match="was tried once"):
        clock.retries(0).run(failing(1))
    assert clock.pauses == []


def test_a_pause_that_is_too_long_is_not_begun() -> None:
    clock = Clock()
    with pytest.raises(EndpointUnavailable, match=r"asks for a pause of 3600 s, and was tried once"):
        clock.retries(60).run(failing(1, after=3600))
    assert clock.pauses == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, 0),
        ("", 0),
        ("7", 7),
        (" 7 ", 7),
        ("-7", 0),
        ("1.5", 0),
        ("\u0667", 0),
        ("soon", 0),
        ("9" * 400, 999_999_999),
        ("Mon, 16 Nov 2026 06:00:30 GMT", 30),
        ("Mon, 16 Nov 2026 05:00:00 GMT", 0),
        ("Mon, 16 Nov 2026 06:00:30 -0000", 30),
        ("Mon, 99 Nov 2026 06:00:30 GMT", 0),
    ],
)
def test_retry_after(text: str | None, seconds: float) -> None:
    assert parse_retry_after(text, lambda: datetime(2026, 11, 16, 6, tzinfo=UTC)) == seconds
