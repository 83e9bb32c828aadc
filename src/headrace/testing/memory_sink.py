"""A sink whose target is in memory, for tests of what runs sinks."""

from __future__ import annotations

from threading import Lock
from typing import Any
from uuid import uuid4

from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Epoch, Sink


class MemoryTarget:
    """What a sink writes to. It outlives sinks, as a table outlives the processes that write it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.staged: dict[str, tuple[int, Any]] = {}
        self.committed: dict[int, Any] = {}
        """What readers see, by epoch."""

    @property
    def rows(self) -> list[Any]:
        """Of all epochs that are committed, in order."""
        with self.lock:
            return [row for epoch in sorted(self.committed) for row in self.committed[epoch]]


class MemorySink(Sink):
    """`rows` of an epoch is anything that can be listed."""

    def __init__(self, name: str, target: MemoryTarget) -> None:
        self.name = name
        self.target = target

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:  # noqa: ARG002
        kept = handle["staged"] if handle else None
        with self.target.lock:
            for staged in [name for name in self.target.staged if name != kept]:
                del self.target.staged[staged]

    def prepare(self, epoch: Epoch, rows: Any) -> JsonObject:
        staged = f"{epoch.number}-{epoch.fence}-{uuid4().hex}"
        with self.target.lock:
            self.target.staged[staged] = (epoch.number, list(rows))
        return {"staged": staged}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        with self.target.lock:
            staged = self.target.staged.pop(handle["staged"], None)
            if staged is not None and epoch not in self.target.committed:
                self.target.committed[epoch] = staged[1]

    def abort(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002
        with self.target.lock:
            self.target.staged.pop(handle["staged"], None)
