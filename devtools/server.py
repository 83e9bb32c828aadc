"""Base class of the servers for tests and benchmarks: real servers that leave no trace."""

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

from devtools.ports import free_port
from devtools.processes import start_server, stop_server, tail
from headrace.testing.ports import is_free

_START_SECONDS = 300.0  # a Java server took 100 s while ten others shared two cores
_TRIES = 5

starts: list[tuple[str, float]] = []
"""Servers that this process has started, each with its start-up time in seconds."""


class ServerError(RuntimeError):
    """Raised if a server cannot be found, started or stopped."""


class Server(ABC):
    """A server on a free port of 127.0.0.1, with its data in a separate folder.

    It is a context manager that removes every trace when it exits. Between `stop` and the next `start` the
    server is down but keeps its port and its data. The server also ends when this process dies. A pickled
    copy is for clients: it knows addresses and passwords but cannot stop the server.
    """

    name: ClassVar[str]  # used in error messages
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
        """Folder of the server's data and of `server.log`."""
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
        """Stops the server; does nothing if it is not running."""
        self._refuse_copy()
        if self._is_up:
            self._is_up = False
            # Another process removes the folder if this one dies before the next start.
            self._replace_process(["sleep", "infinity"], signal.SIGTERM)

    def close(self) -> None:
        """Stops the server for good and removes its data; does nothing if there are none."""
        self._refuse_copy()
        self._is_up = False
        self._end_process(keeps_folder=False)
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)  # most of it has been removed already
            self._home = None

    @abstractmethod
    def _prepare(self, home: Path) -> None:
        """Writes the files that the server needs, before its first start."""

    @abstractmethod
    def _command(self, home: Path) -> list[str]:
        """Returns the command that runs the server until `stop_signal`."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """True if the server can be used. Must be False if another server listens on its port."""

    def _draw_ports(self) -> None:
        self._ports = [free_port()]

    def _surroundings(self) -> dict[str, Any]:
        """Returns additional arguments of Popen."""
        return {}

    def _launch(self) -> None:
        """Starts the process. At the first start, picks other ports if one was taken in the meantime."""
        is_first = self._home is None
        for left in reversed(range(_TRIES)):
            if self._home is None:
                # Directly in the temporary folder, because the path of a Unix socket has at most 107 bytes.
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
    """Returns a minimal environment: no variable of ours, such as AWS_PROFILE or PGDATA, reaches a server."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}
