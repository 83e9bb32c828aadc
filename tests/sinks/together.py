"""Concurrent calls, and a reader that polls in the meantime."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tests.waiting import DEADLINE_SECONDS

T = TypeVar("T")


def run_together(calls: Sequence[Callable[[], object]]) -> None:
    """Runs all calls at once, and raises the first error."""
    errors: list[BaseException] = []
    all_of_them = threading.Barrier(len(calls), timeout=DEADLINE_SECONDS)

    def run(call: Callable[[], object]) -> None:
        try:
            all_of_them.wait()
            call()
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


@contextmanager
def polled(read: Callable[[], T]) -> Iterator[list[T]]:
    """Yields a list of what a thread reads repeatedly until the block ends, and once after it."""
    seen: list[T] = []
    errors: list[BaseException] = []
    is_over = threading.Event()

    def poll() -> None:
        try:
            while not is_over.is_set():
                seen.append(read())
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    reader = threading.Thread(target=poll)
    reader.start()
    try:
        yield seen
    finally:
        is_over.set()
        reader.join()
    if errors:
        raise errors[0]
    seen.append(read())
