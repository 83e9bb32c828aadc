"""Decides when a request is retried, and when it is given up."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from headrace.errors import EndpointUnavailable

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.25
LONGEST_PAUSE = 30.0


class TryAgain(Exception):
    """A request failed temporarily; `after` is how many seconds the receiver asked to wait."""

    def __init__(self, message: str, after: float = 0.0) -> None:
        super().__init__(message)
        self.after = after


@dataclass(frozen=True)
class Retries:
    """Pauses that double, shortened at random so that many shards do not retry all at once."""

    retry_for: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    chance: Callable[[], float] = random.random

    def run(self, attempt: Callable[[], None]) -> None:
        """Retries until it succeeds, fails permanently, or its time is over."""
        began = self.clock()
        pause = FIRST_PAUSE
        tries = 1
        while True:
            try:
                attempt()
            except TryAgain as failure:
                wait = max(pause * (0.5 + self.chance() / 2), failure.after)
                if self.clock() - began + wait > self.retry_for:
                    raise EndpointUnavailable(_given_up(failure, tries, self.retry_for)) from failure
                log.warning("%s; trying again in %.2f s", failure, wait)
                self.sleep(wait)
                pause = min(pause * 2, LONGEST_PAUSE)
                tries += 1
            else:
                return


def _given_up(failure: TryAgain, tries: int, retry_for: float) -> str:
    asked = f", asks for a pause of {failure.after:g} s" if failure.after > retry_for else ""
    times = "once" if tries == 1 else f"{tries} times"
    return f"{failure}{asked}, and was tried {times} within the {retry_for:g} s of 'retry_for'"


def parse_retry_after(text: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float:
    """Returns how many seconds a Retry-After asks for; 0 if there is none, or none that can be parsed."""
    if text is None:
        return 0.0
    if text.strip().isdecimal() and text.isascii():
        return float(text[:9])
    try:
        then = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    return max(0.0, (then.replace(tzinfo=then.tzinfo or UTC) - now()).total_seconds())
