"""The output of `headrace run`: a line for each epoch, and in a terminal a live status below."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from threading import Lock
from types import TracebackType
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.errors import HeadraceError
from headrace.pipeline.guarantee import Compiled
from headrace.pipeline.progress import EpochProgress


class _Output(ABC):
    """Receives reports of materializations, each on a thread of its own."""

    def __init__(self) -> None:
        self._lock = Lock()

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def step(self, name: str, step: str) -> None:  # noqa: B027 - not abstract: nobody prints steps
        """Prints nothing, because there are too many steps to read."""

    @abstractmethod
    def state(self, name: str, text: str) -> None:
        """Reports that a materialization has changed its state."""

    def failed(self, name: str, error: HeadraceError) -> None:
        """Reports a failure at once, and only on standard error: the others may run for days."""
        self.state(name, "stopped")
        with self._lock:
            click.echo(f"headrace: materialization {name!r}: {error.message}", err=True)


class JsonLines(_Output):
    """Prints one object per line: `event` is planned, state, epoch or failed."""

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:
        reasons = [str(reason) for reason in compiled.reasons]
        self._say("planned", name, {"guarantee": compiled.guarantee, "reasons": reasons, "applied": actions})

    def state(self, name: str, text: str) -> None:
        self._say("state", name, {"state": text})

    def failed(self, name: str, error: HeadraceError) -> None:
        self._say("failed", name, {"error": type(error).__name__, "message": error.message})
        super().failed(name, error)

    def epoch(self, name: str, progress: EpochProgress) -> None:
        self._say("epoch", name, progress.to_json())

    def _say(self, event: str, name: str, more: dict[str, Any]) -> None:
        with self._lock:
            click.echo(json.dumps({"event": event, "materialization": name, **more}, default=str))


class Lines(_Output):
    """Prints lines that suit log files."""

    def __init__(self) -> None:
        super().__init__()
        self._states: dict[str, str] = {}

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:
        lines = [f"{name}: {compiled.guarantee}", *(f"  {reason}" for reason in compiled.reasons)]
        lines += [f"  {line}" for line in actions.splitlines()]
        self._say("\n".join(lines))

    def state(self, name: str, text: str) -> None:
        if self._states.get(name) != text:
            self._states[name] = text
            self._say(f"{name}: {text}")

    def epoch(self, name: str, progress: EpochProgress) -> None:
        self._say(f"{name}: {progress.line()}")

    def _say(self, text: str) -> None:
        with self._lock:
            click.echo(text)


@dataclass
class _Status:
    text: str = "starting"
    epoch: int | None = None
    rows: int = 0
    dead: int = 0
    last_rows: int = 0
    last_ms: int = 0
    ended: float = 0.0


class LiveStatus(_Output):
    """Prints scrolling lines, and below them the state of each materialization."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(highlight=False)
        self._statuses: dict[str, _Status] = {}
        self._live = Live(
            console=self._console, get_renderable=self._table, refresh_per_second=2, redirect_stderr=False
        )

    def __enter__(self) -> None:
        self._live.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:
        self._of(name)
        # Plain texts, here and below: brackets in an error or a name are not rich's markup.
        self._console.print(Text(name, style="bold") + Text(f": {compiled.guarantee}"))
        for line in [*map(str, compiled.reasons), *actions.splitlines()]:
            self._console.print(Text(f"  {line}"))

    def state(self, name: str, text: str) -> None:
        self._of(name).text = text

    def epoch(self, name: str, progress: EpochProgress) -> None:
        status = self._of(name)
        status.epoch = progress.epoch
        status.rows += progress.read
        status.dead += progress.dead
        status.last_rows, status.last_ms = progress.read, progress.total_ms
        status.ended = time.monotonic()
        self._console.print(Text(f"{name}: {progress.line()}"))

    def _of(self, name: str) -> _Status:
        with self._lock:
            return self._statuses.setdefault(name, _Status())

    def _table(self) -> Table:
        table = Table("", "epoch", "rows", "dead", "rows/s", "last epoch", "", box=None)
        with self._lock:
            statuses = list(self._statuses.items())
        for name, status in statuses:
            ago = f"{time.monotonic() - status.ended:.0f} s ago" if status.epoch is not None else ""
            rate = f"{1000 * status.last_rows / status.last_ms:,.0f}" if status.last_ms else ""
            epoch = "" if status.epoch is None else str(status.epoch)
            counts = (epoch, f"{status.rows:,}", f"{status.dead:,}", rate, ago)
            table.add_row(Text(name), *counts, Text(status.text))
        return table
