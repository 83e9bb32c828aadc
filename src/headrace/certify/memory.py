"""The sink in memory, whose target outlives who writes to it: given up at each step, in one process."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime

from headrace.certify.defects.names import COMMIT_AGAIN, LEFT_BEHIND
from headrace.certify.documents import BATCH, documents
from headrace.certify.oracle import look
from headrace.certify.quiet import quiet
from headrace.certify.results import Cell, Evidence, Outcome, Seeded
from headrace.errors import HeadraceError
from headrace.model.checkpoints import JsonObject
from headrace.objects import ObjectStore
from headrace.pipeline.coordinator import Coordinator
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.pipeline.settings import Guarantee
from headrace.testing.memory_sink import MemorySink, MemoryTarget

_SINKS = ("first", "second")
_EPOCHS = 4
_STEPS = [
    "opened",
    *(f"prepared {name}" for name in _SINKS),
    "decided",
    *(f"committed {name}" for name in _SINKS),
]


CELL = Cell("rows in memory", "memory", "dev-local", Guarantee.EXACTLY_ONCE)
"""Of which nothing is known yet."""


class _GivenUp(BaseException):
    """Nothing catches it, as nothing catches a kill."""


def certify_memory(seed: int) -> Cell:
    """As a coordinator runs it, with a recovery log in memory."""
    evidence = tuple(_evidence(step, seed) for step in _STEPS)
    return replace(CELL, evidence=evidence)


def _evidence(step: str, seed: int) -> Evidence:
    began, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    told = _problem(step)
    return Evidence(
        _scenario(step),
        Outcome.BROKEN if told else Outcome.HELD,
        told,
        seed,
        (_scenario(step),),
        _EPOCHS * BATCH,
        _EPOCHS,
        0,
        round(time.monotonic() - clock, 3),
        began,
    )


class _CommitsAgain(MemorySink):
    def commit(self, epoch: int, handle: JsonObject) -> None:
        rows = self.target.staged[handle["staged"]][1]
        self.target.committed[epoch] = [*self.target.committed.get(epoch, ()), *rows]


class _LeavesBehind(MemorySink):
    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        pass


class _RemovesAll(MemorySink):
    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:  # noqa: ARG002
        self.target.staged.clear()


_DEFECTS: dict[str, tuple[str, type[MemorySink], str]] = {
    "opened": (COMMIT_AGAIN, _CommitsAgain, "more than once"),
    "prepared first": (LEFT_BEHIND, _LeavesBehind, "still staged"),
    "prepared second": (LEFT_BEHIND, _LeavesBehind, "still staged"),
    "decided": ("a start removes what was decided", _RemovesAll, "is gone"),
    "committed first": (COMMIT_AGAIN, _CommitsAgain, "more than once"),
    "committed second": (COMMIT_AGAIN, _CommitsAgain, "more than once"),
}
"""Of each step: what is wrong with the sinks, and what is noticed of it."""


def seeded_memory() -> list[Seeded]:
    found = []
    for step, (defect, kind, notice) in _DEFECTS.items():
        with quiet("headrace.pipeline"):
            told = _problem(step, kind)
        found.append(Seeded(_scenario(step), defect, notice in told, told or "nothing was noticed"))
    return found


def _scenario(step: str) -> str:
    return f"given up when {step}"


def _problem(step: str, kind: type[MemorySink] = MemorySink) -> str:
    """What is wrong after everything has been given up once at this step, and begun again."""
    store, targets = ObjectStore("memory:///", {}), {name: MemoryTarget() for name in _SINKS}
    left = 2  # epochs before and after it are as usual

    def observe(done: str) -> None:
        nonlocal left
        left -= done == step
        if done == step and not left:
            raise _GivenUp

    epoch = 0
    for _ in range(8):
        sinks = [kind(name, target) for name, target in targets.items()]
        coordinator = Coordinator(RecoveryLog(store, "memory"), sinks, observe=observe)
        try:
            coordinator.start({})
            while epoch < _EPOCHS:
                coordinator.run(epoch, {"epoch": epoch}, documents(epoch * BATCH + 1, BATCH))
                coordinator.settle()
                epoch += 1
            if left > 0:  # a step of the start: begin once more
                continue
            break
        except _GivenUp:
            continue
        except HeadraceError as error:
            return error.message
    problems = []
    for name, target in targets.items():
        found = look(target.rows, is_view=False)
        problem = found.problem()
        if found.prefix != _EPOCHS * BATCH:
            problem = f"{found.prefix} of {_EPOCHS * BATCH} documents are there"
        if problem or target.staged:
            problems.append(f"{name}: {problem or 'something is still staged'}")
    return "; ".join(problems)
