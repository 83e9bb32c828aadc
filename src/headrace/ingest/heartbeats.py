"""Signs of life of a server's background tasks: one that hangs or has ended fails nothing by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread, current_thread

IDLE_SECONDS = 1.0
"""How long a task waits for work before it beats again."""


@dataclass(slots=True)
class _Task:
    bound: float
    at: float
    thread: Thread | None = None


class Heartbeats:
    """Beats by task. Any thread reads them; of each task one thread beats."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tasks: dict[str, _Task] = {}
        self._watched: dict[str, tuple[float, Callable[[], tuple[bool, float]]]] = {}

    def expect(self, task: str, bound: float) -> Callable[[], None]:
        """Returns what the task calls when it starts, and then on its own thread between any two calls that
        take long, and while it waits. No work of it that is as it should be takes longer than `bound`."""
        known = self._tasks[task] = _Task(bound, self._clock())

        def beat() -> None:
            known.at, known.thread = self._clock(), current_thread()

        return beat

    def watch(self, task: str, bound: float, look: Callable[[], tuple[bool, float]]) -> None:
        """Asks of a task that is not one of ours, when somebody wants to know, whether it runs and how many
        seconds ago it showed a sign of life."""
        self._watched[task] = (bound, look)

    def ages(self) -> dict[str, float]:
        """Returns for each task how many seconds ago it beat."""
        now = self._clock()
        ages = {name: max(now - task.at, 0.0) for name, task in self._tasks.items()}
        return ages | {name: look()[1] for name, (_, look) in self._watched.items()}

    def problems(self) -> list[str]:
        """Names each task that is not known to be well."""
        told = ((name, self._problem(name, age)) for name, age in self.ages().items())
        return [f"task {name} {problem}" for name, problem in told if problem]

    def _problem(self, name: str, age: float) -> str | None:
        if name in self._watched:
            bound, look = self._watched[name]
            is_alive = look()[0]
        else:
            task = self._tasks[name]
            if task.thread is None:
                return "has not begun: nothing is known of it"
            bound, is_alive = task.bound, task.thread.is_alive()
        if not is_alive:
            return "has ended: restart the server"
        if age > bound:
            return (
                f"has shown no sign of life for {age:.0f} s, where {bound:.0f} are the most: "
                "restart the server if it does not come back"
            )
        return None
