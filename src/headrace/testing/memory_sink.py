"""A sink whose target is in memory, for tests of what runs sinks."""

from __future__ import annotations

from threading import Lock
from typing import Any
from uuid import uuid4

from headrace.errors import EndpointError
from headrace.model.checkpoints import JsonObject
from headrace.sinks.contract import Epoch, Sink


class MemoryTarget:
    """The target of a sink. It outlives sinks, as a table outlives the processes that write it."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.staged: dict[str, tuple[int, Any]] = {}
        """The fence under which an epoch was staged, and its rows."""
        self.committed: dict[int, Any] = {}
        """The rows that readers see, by epoch."""

    @property
    def rows(self) -> list[Any]:
        """Returns the rows of all committed epochs, in order."""
        with self.lock:
            return [row for epoch in sorted(self.committed) for row in self.committed[epoch]]


class MemorySink(Sink):
    """The `rows` of an epoch can be anything that can be listed."""

    def __init__(self, name: str, target: MemoryTarget) -> None:
        self.name = name
        self.target = target

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:  # noqa: ARG002
        kept = handle["staged"] if handle else None
        with self.target.lock:
            for name, (under, _) in list(self.target.staged.items()):
                if name != kept and under < fence:
                    del self.target.staged[name]

    def prepare(self, epoch: Epoch, rows: Any) -> JsonObject:
        staged = f"{epoch.number}-{epoch.fence}-{uuid4().hex}"
        with self.target.lock:
            self.target.staged[staged] = (epoch.fence, list(rows))
        return {"staged": staged}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        with self.target.lock:
            staged = self.target.staged.pop(handle["staged"], None)
            if epoch in self.target.committed:
                return
            if staged is None:
                raise EndpointError(f"sink {self.name}: what was staged for epoch {epoch} is gone")
            self.target.committed[epoch] = staged[1]

    def abort(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002
        with self.target.lock:
            self.target.staged.pop(handle["staged"], None)
