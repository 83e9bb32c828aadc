"""Stores the checkpoints of the reference runtime."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Protocol

from headrace.model.checkpoints import JsonObject, to_json


@dataclass(frozen=True)
class LoggedState:
    """The last transaction that was committed to the log."""

    runtime_checkpoint: JsonObject = field(default_factory=dict)
    connector_checkpoint: JsonObject | None = None


class RecoveryLog(Protocol):
    def read(self) -> LoggedState: ...

    def commit(self, state: LoggedState) -> None:
        """Returns once the state would survive a crash of the process."""
        ...


class MemoryLog:
    """A log in memory, lost with the process."""

    def __init__(self) -> None:
        self._state = LoggedState()

    def read(self) -> LoggedState:
        return self._state

    def commit(self, state: LoggedState) -> None:
        self._state = state


class FileLog:
    """A log in one file, which is replaced atomically, so that a reader finds the state before or after."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> LoggedState:
        if not self._path.exists():
            return LoggedState()
        return LoggedState(**json.loads(self._path.read_bytes()))

    def commit(self, state: LoggedState) -> None:
        draft = self._path.with_suffix(".draft")
        with draft.open("wb") as file:
            file.write(to_json(asdict(state)).encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
