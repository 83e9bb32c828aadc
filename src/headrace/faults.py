"""Named points of the code at which something is made to go wrong; they do nothing unless a folder says so.

A process that was started with `HEADRACE_FAULTS=FOLDER` looks into `FOLDER/armed` whenever it gets to a
point, and so do its children. What it finds there under the point's name happens once, whichever process
comes first. Without the variable a point costs a call of a function that returns.
"""

from __future__ import annotations

import errno
import importlib
import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, unquote

from headrace.errors import EndpointUnavailable

log = logging.getLogger(__name__)

VARIABLE = "HEADRACE_FAULTS"
_LOOK_EVERY = 0.02


class Action(StrEnum):
    """What happens at a point."""

    KILL = "kill"
    """The process is killed, with all of its group."""
    LOSE = "lose"
    """The process is killed, and nobody else."""
    PARK = "park"
    """Nothing more happens there, until it is released."""
    IO_ERROR = "io-error"
    DISK_FULL = "disk-full"
    UNAVAILABLE = "unavailable"
    """The endpoint does not answer."""


class Faults:
    """What is to happen, in a folder that several processes share."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("armed", "fired", "parked", "released"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        """Of processes that are to look here."""
        return {VARIABLE: str(self.folder)}

    def arm(self, point: str, action: Action, occurrence: int = 1) -> None:
        """At the given occurrence of the point, counted over all processes."""
        self._write("armed", point, f"{action} {occurrence}")

    def disarm(self) -> None:
        """What has not happened does not any more."""
        for file in (self.folder / "armed").iterdir():
            file.unlink(missing_ok=True)

    def clear(self) -> None:
        """As if nothing had ever been armed."""
        for name in ("armed", "fired", "parked", "released"):
            for file in (self.folder / name).iterdir():
                file.unlink(missing_ok=True)

    def release(self, point: str) -> None:
        """Lets what is parked there go on."""
        self._write("released", point, "")

    @property
    def fired(self) -> set[str]:
        """Points at which something has happened."""
        return self._points("fired")

    @property
    def parked(self) -> set[str]:
        """Points at which somebody waits, or has waited."""
        return self._points("parked")

    def happened(self, point: str) -> Action | None:
        """What has, there."""
        try:
            action, _, _ = (self.folder / "fired" / quote(point, safe=" ")).read_text().rpartition(" ")
        except FileNotFoundError:
            return None
        return Action(action)

    def load(self, *modules: str) -> None:
        """Modules that each process imports when it first gets to a point."""
        (self.folder / "modules").write_text("\n".join(modules))

    def meet(self, point: str) -> None:
        """Does what is armed at a point."""
        name = quote(point, safe=" ")
        armed, fired = self.folder / "armed" / name, self.folder / "fired" / name
        try:
            action, _, left = armed.read_text().rpartition(" ")
            if int(left) > 1:
                self._write("armed", point, f"{action} {int(left) - 1}")
                return
            armed.rename(fired)  # only one succeeds
        except FileNotFoundError:
            return
        self._do(Action(action), point)

    def import_modules(self) -> None:
        with suppress(FileNotFoundError):
            for module in (self.folder / "modules").read_text().split():
                importlib.import_module(module)

    def _do(self, action: Action, point: str) -> None:
        match action:
            case Action.KILL:
                os.killpg(0, signal.SIGKILL)
            case Action.LOSE:
                os.kill(os.getpid(), signal.SIGKILL)
            case Action.PARK:
                self._write("parked", point, str(os.getpid()))
                while not (self.folder / "released" / quote(point, safe=" ")).exists():
                    time.sleep(_LOOK_EVERY)
            case Action.IO_ERROR:
                raise OSError(errno.EIO, f"as if the device had failed, at {point}")
            case Action.DISK_FULL:
                raise OSError(errno.ENOSPC, f"as if there were no room, at {point}")
            case Action.UNAVAILABLE:
                raise EndpointUnavailable(f"as if it did not answer, at {point}")

    def _points(self, kind: str) -> set[str]:
        return {unquote(file.name) for file in (self.folder / kind).iterdir() if file.suffix != ".new"}

    def _write(self, kind: str, point: str, text: str) -> None:
        """Whole, or not at all."""
        file = self.folder / kind / quote(point, safe=" ")
        new = file.with_name(f"{file.name}.{os.getpid()}.new")
        new.write_text(text)
        new.rename(file)


def _ignore(_: str) -> None:
    pass


class _Watch:
    def __init__(self, folder: Path) -> None:
        log.warning("things go wrong on purpose, as %s says (%s)", folder, VARIABLE)
        self._faults = Faults(folder)
        self._loading = threading.RLock()  # nobody gets past a point before all modules are there
        self._is_loaded = False

    def __call__(self, point: str) -> None:
        with self._loading:
            if not self._is_loaded:
                self._is_loaded = True
                self._faults.import_modules()
        self._faults.meet(point)


reached: Callable[[str], None] = _Watch(Path(os.environ[VARIABLE])) if VARIABLE in os.environ else _ignore
"""Called where something may go wrong, with the name of a point: whose it is, and what comes or just was."""
