"""What outlives the processes of a coordinator, and sinks that fail as they are told to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.model.checkpoints import JsonObject
from headrace.objects import ObjectStore
from headrace.pipeline.coordinator import Coordinator, RetryPolicy
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.sinks.contract import Epoch, Sink
from headrace.testing.memory_sink import MemorySink, MemoryTarget

QUICK = RetryPolicy(first_pause=0.001, longest_pause=0.01)


def tried_ten_times() -> RetryPolicy:
    """Uses a clock that advances by a second whenever it is read: before the first try and after each."""
    return replace(QUICK, decide_for=9.0, clock=itertools.count().__next__)


class Crash(BaseException):
    """The end of the process, as far as it can be played in one."""


class AuthoritativeSink(Sink):
    """Commits while it prepares, and knows an epoch that it has had."""

    cannot_undo = True

    def __init__(self, name: str, target: MemoryTarget) -> None:
        self.name, self.target = name, target
        self.started_with: JsonObject | None = None

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self.started_with = handle

    def prepare(self, epoch: Epoch, rows: Any) -> JsonObject:
        with self.target.lock:
            self.target.committed.setdefault(epoch.number, list(rows))
        return {"prepared": epoch.number}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        assert epoch in self.target.committed

    def abort(self, epoch: int, handle: JsonObject) -> None:
        raise AssertionError("it cannot be undone")


class World:
    """What outlives processes: the recovery log, the sinks' targets, and how far Spark's own log goes."""

    def __init__(self, folder: Path) -> None:
        self.store = ObjectStore((folder / "state").as_uri())
        self.good, self.dead, self.view = MemoryTarget(), MemoryTarget(), MemoryTarget()
        self.steps: list[str] = []

    def sinks(self) -> list[Sink]:
        return [
            AuthoritativeSink("view", self.view),
            MemorySink("good", self.good),
            MemorySink("dead", self.dead),
        ]

    def coordinator(
        self,
        observe: Callable[[str], None] | None = None,
        sinks: Sequence[Sink] | None = None,
        retry_policy: RetryPolicy = QUICK,
    ) -> Coordinator:
        log = RecoveryLog(self.store, "log")
        return Coordinator(
            log,
            self.sinks() if sinks is None else sinks,
            retry_policy=retry_policy,
            observe=observe or self.steps.append,
        )

    def targets(self) -> list[MemoryTarget]:
        return [self.good, self.dead, self.view]


def rows_of(epoch: int) -> list[int]:
    return [10 * epoch, 10 * epoch + 1]


def run_epochs(coordinator: Coordinator, first: int, last: int) -> None:
    coordinator.start()
    for epoch in range(first, last + 1):
        coordinator.run(epoch, {"offsets": epoch}, rows_of(epoch), lambda: {"read": 2})
    coordinator.close()
    coordinator.settle()


def assert_exactly_once(world: World, last: int) -> None:
    expected = [row for epoch in range(last + 1) for row in rows_of(epoch)]
    for target in world.targets():
        assert target.rows == expected
        assert target.staged == {}


class Failing(MemorySink):
    """Fails as it is told to, as long as it is told to."""

    def __init__(self, name: str, target: MemoryTarget) -> None:
        super().__init__(name, target)
        self.start_error: Exception | None = None
        self.prepare_error: Exception | None = None
        self.commit_error: Exception | None = None
        self.abort_error: Exception | None = None

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        if self.start_error:
            raise self.start_error
        super().start(decided, handle, fence)

    def prepare(self, epoch: Epoch, rows: Any) -> JsonObject:
        if self.prepare_error:
            raise self.prepare_error
        return super().prepare(epoch, rows)

    def commit(self, epoch: int, handle: JsonObject) -> None:
        if self.commit_error:
            raise self.commit_error
        super().commit(epoch, handle)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        if self.abort_error:
            raise self.abort_error
        super().abort(epoch, handle)
