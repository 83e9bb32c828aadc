"""Sends many requests, sequentially or several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from headrace.connectors.webhook.batches import Batch


def deliver(batches: Iterator[Batch], post: Callable[[Batch], None], concurrency: int) -> None:
    """Returns once every batch was posted; raises the first failure, after which no other batch is begun."""
    taking = threading.Lock()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            while not failures:
                with taking:
                    batch = next(batches, None)
                if batch is None:
                    return
                post(batch)
        except BaseException as error:  # noqa: BLE001 - raised again by the thread that called
            failures.append(error)

    helpers = [
        threading.Thread(target=work, name="headrace-webhook", daemon=True) for _ in range(concurrency - 1)
    ]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
