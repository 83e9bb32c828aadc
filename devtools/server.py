"""What the servers of tests and benchmarks have in common: a real one, of one's own, that leaves no trace."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from devtools.ports import free_port, is_free
from devtools.processes import start_server, stop_server, tail

_START_SECONDS = 300.0  # a Java server took 100 s on two cores that ten others wanted
_TRIES = 5

starts: list[tuple[str, float]] = []
"""The servers that this process has started, each with the seconds that it took."""


class ServerError(RuntimeError):
    """A server cannot be found, started or stopped."""


class Server(ABC):
    """One server, on a free port of 127.0.0.1, with its data in a folder of its own.

    A context manager, which removes every trace at its end. Between `stop` and the next `start`, the server
    is down but keeps its port and its data. It also goes away when this process dies. A copy that was pickled
    is for clients: whoever has it can ask it for addresses and passwords, and cannot stop the server.
    """

    name: ClassVar[str]  # for errors
    stop_signal: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self) -> None:
        self._ports: list[int] = []
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_up = False
        self._is_copy = False
        self._draw_ports()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_process": None, "_is_copy": True}

    @property
    def port(self) -> int:
        return self._ports[0]

    @property
    def home(self) -> Path:
        """The folder of its data and of `server.log`."""
        assert self._home is not None, "start the server first"
        return self._home

    @property
    def log(self) -> Path:
        return self.home / "server.log"

    def start(self) -> None:
        """Starts the server, for the first time or again; returns when it answers."""
        self._refuse_copy()
        if self._is_up:
            raise ServerError(f"this {self.name} is already started")
        began = time.monotonic()
        try:
            self._launch()
        except BaseException:
            self.close()
            raise
        self._is_up = True
        starts.append((self.name, time.monotonic() - began))

    def stop(self) -> None:
        """Ends the server; does nothing if it is not started."""
        self._refuse_copy()
        if self._is_up:
            self._is_up = False
            # Somebody has to remove the folder if this process dies before the next start.
            self._replace_process(["sleep", "infinity"], signal.SIGTERM)

    def close(self) -> None:
        """Ends the server for good and removes its data; does nothing if there are none."""
        self._refuse_copy()
        self._is_up = False
        self._end_process(keeps_folder=False)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)  # most of it is gone already
            self._home = None

    @abstractmethod
    def _prepare(self, home: Path) -> None:
        """Writes what the server needs into its folder, before its first start."""

    @abstractmethod
    def _command(self, home: Path) -> list[str]:
        """Returns what runs the server until `stop_signal`."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """True if the server can be used. Another one that listens on its port must not pass for it."""

    def _draw_ports(self) -> None:
        self._ports = [free_port()]

    def _surroundings(self) -> dict[str, Any]:
        """More arguments of Popen."""
        return {}

    def _launch(self) -> None:
        """Starts a process. At the first start, draws other ports if somebody has taken one meanwhile."""
        is_first = self._home is None
        for left in reversed(range(_TRIES)):
            if self._home is None:
                # Directly in the temporary folder: the path of a Unix socket has at most 107 bytes.
                self._home = Path(tempfile.mkdtemp(prefix="headrace-server-"))
                self._prepare(self._home)
            self._replace_process(self._command(self._home), self.stop_signal)
            try:
                self._await_ready()
            except ServerError:
                self._end_process()
                if not (is_first and left) or all(map(is_free, self._ports)):
                    raise
                self.close()
                self._draw_ports()
            else:
                return

    def _replace_process(self, command: list[str], stop_signal: signal.Signals) -> None:
        self._end_process()
        surroundings: dict[str, Any] = {"cwd": self.home, "env": environment(), **self._surroundings()}
        with self.log.open("ab") as log:
            self._process = start_server(
                command, self.home, stop_signal, stdout=log, stderr=log, **surroundings
            )

    def _end_process(self, keeps_folder: bool = True) -> None:
        if self._process is not None:
            stop_server(self._process, keeps_folder)
            self._process = None

    def _await_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None:
                raise ServerError(f"{self.name} did not start:\n{tail(self.log)}")
            if time.monotonic() > deadline:
                raise ServerError(f"{self.name} was not ready in {_START_SECONDS:.0f} s:\n{tail(self.log)}")
            time.sleep(0.02)

    def _refuse_copy(self) -> None:
        if self._is_copy:
            raise ServerError(f"this {self.name} is shared by all tests: start one of your own")


def environment() -> dict[str, str]:
    """No variable of the caller, such as AWS_PROFILE, PGDATA or JAVA_TOOL_OPTIONS, may reach a server."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
