"""The commit of a decided epoch in all sinks: one after the other, past those that fail or do not answer."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from headrace.errors import HeadraceError, Transient, UnexpectedFailure
from headrace.pipeline.recovery_log import Decision
from headrace.sinks.contract import Sink

log = logging.getLogger(__name__)

E = TypeVar("E", bound=Exception)

# How soon it is noticed that one answers which was not waited for any more.
_LOOK_EVERY = 1.0


@dataclass(frozen=True)
class RetryPolicy:
    """How long what fails for a while is tried again, in seconds."""

    first_pause: float = 0.1
    longest_pause: float = 30.0
    decide_for: float = 60.0
    """A decision that cannot be written for so long stops the materialization. A commit is tried for ever,
    unless another sink's has failed for good: then for so long."""
    answer_within: float = 60.0
    """A sink whose commit has not returned by then is stuck, and the ones after it are not held up."""
    clock: Callable[[], float] = time.monotonic
    """Measures `decide_for`; replaced by tests."""

    def pauses(self) -> Pauses:
        return Pauses(self)


class Pauses:
    def __init__(self, retry_policy: RetryPolicy) -> None:
        self._next, self._longest = retry_policy.first_pause, retry_policy.longest_pause

    def next(self) -> float:
        pause, self._next = self._next, min(2 * self._next, self._longest)
        return pause


class EpochCommitter:
    """Commits a decided epoch in every sink, retrying transient failures. `stuck` maps each sink that has not
    committed to the reason.

    `on_stuck` is called whenever it changes, `observe` of each sink that has committed. Nothing is tried
    again once `closing` is set.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        retry_policy: RetryPolicy,
        closing: threading.Event,
        on_stuck: Callable[[int, Mapping[str, str]], None],
        observe: Callable[[str], None],
    ) -> None:
        self._sinks, self._retry_policy, self._closing = sinks, retry_policy, closing
        self._on_stuck, self._observe = on_stuck, observe
        self._threads = {sink.name: _SinkThread(f"headrace-commit-{sink.name}") for sink in sinks}
        self._asked: dict[str, Future[None]] = {}
        self.stuck: dict[str, str] = {}

    def commit(self, decision: Decision, unstarted: Mapping[str, Exception] | None = None) -> None:
        """Returns when every sink has committed; raises why one never will, when all others have.

        `unstarted` has what went wrong with sinks that cannot be asked.
        """
        failed = dict(unstarted or {})
        for name, error in failed.items():
            self._is_stuck(decision.epoch, name, f"it cannot be started: {_said(error)}")
        left = [sink for sink in self._sinks if sink.name in decision.handles and sink.name not in failed]
        pauses, until = self._retry_policy.pauses(), float("inf")
        while left:
            left = [sink for sink in left if not self._is_done(sink, decision, failed)]
            if failed:
                until = min(until, self._retry_policy.clock() + self._retry_policy.decide_for)
            pause = min(pauses.next(), _LOOK_EVERY) if self._asked else pauses.next()
            if left and (self._retry_policy.clock() > until or self._closing.wait(pause)):
                break
        if failed:
            raise graver(failed.values())
        if left:
            names = ", ".join(sink.name for sink in left)
            raise UnexpectedFailure(f"epoch {decision.epoch} is left to be committed by {names}")

    def close(self) -> None:
        for thread in self._threads.values():
            thread.close()

    def _is_done(self, sink: Sink, decision: Decision, failed: dict[str, Exception]) -> bool:
        """Whether it has committed, or has failed for good."""
        answer, seconds = self._asked.get(sink.name), 0.0
        if answer is None:
            handle, seconds = decision.handles[sink.name], self._retry_policy.answer_within
            answer = self._threads[sink.name].call(lambda: sink.commit(decision.epoch, handle))
        if not wait([answer], seconds).done:
            if sink.name not in self._asked:
                self._asked[sink.name] = answer
                at = datetime.now(UTC)
                why = f"at {at:%Y-%m-%d %H:%M:%S}Z it had not answered for {seconds:.0f} s"
                self._is_stuck(decision.epoch, sink.name, why)
            return False
        self._asked.pop(sink.name, None)
        try:
            answer.result()
        except Transient as error:
            self._is_stuck(decision.epoch, sink.name, error.message)
            return False
        except Exception as error:  # noqa: BLE001 - it is raised when the others have had their turn
            self._is_stuck(decision.epoch, sink.name, _said(error))
            failed[sink.name] = error
            return True
        if self.stuck.pop(sink.name, None):
            self._on_stuck(decision.epoch, self.stuck)
        self._observe(f"committed {sink.name}")
        return True

    def _is_stuck(self, epoch: int, sink: str, why: str) -> None:
        if self.stuck.get(sink) != why:
            log.warning("epoch %d, sink %s: %s", epoch, sink, why)
            self.stuck[sink] = why
            self._on_stuck(epoch, self.stuck)


class _SinkThread:
    """A thread for the calls of one sink, which does not keep the process from ending if one hangs."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._calls: queue.SimpleQueue[tuple[Callable[[], None], Future[None]] | None] = queue.SimpleQueue()

    def call(self, what: Callable[[], None]) -> Future[None]:
        answer: Future[None] = Future()
        self._calls.put((what, answer))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        return answer

    def close(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (one := self._calls.get()) is not None:
            what, answer = one
            try:
                what()
            except BaseException as error:  # noqa: BLE001 - of whoever waits for the answer
                answer.set_exception(error)
            else:
                answer.set_result(None)


def graver(errors: Iterable[E]) -> E:
    """The first that will not go away by itself, if there is one."""
    return min(errors, key=lambda error: isinstance(error, Transient))


def _said(error: Exception) -> str:
    return error.message if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
