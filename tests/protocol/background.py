"""A call on a thread of its own, for tests with two sides."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from tests.waiting import DEADLINE_SECONDS

Result = TypeVar("Result")


class Background(Generic[Result]):
    """Starts at once; `result` waits, and raises what the call raised."""

    def __init__(self, call: Callable[[], Result]) -> None:
        self._call = call
        self._result: Result | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._result = self._call()
        except BaseException as error:  # noqa: BLE001 - it is raised again in `result`
            self._error = error

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def result(self) -> Result:
        self._thread.join(DEADLINE_SECONDS)
        assert not self._thread.is_alive(), "the other side hangs"
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # a call that returned has a result


def happens(event: threading.Event) -> bool:
    """Waits for an event; False only if it never comes."""
    return event.wait(DEADLINE_SECONDS)


class WatchedCondition(threading.Condition):
    """Tells when somebody starts to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Event()

    def wait(self, timeout: float | None = None) -> bool:
        self.waiting.set()
        return super().wait(timeout)
