"""What the servers that run on Java have in common."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from devtools.processes import free_port, start_server, stop_server, tail
from headrace.pipeline.java import find_java

_START_SECONDS = 120.0


class JavaServerError(RuntimeError):
    """A server cannot be started."""


class JavaServer(ABC):
    """One server, on a free port of 127.0.0.1, with its data in a folder of its own.

    A context manager, which removes every trace at its end. Between `stop` and the next `start`, the server
    is down but keeps its port and its data. It also goes away when this process dies.
    """

    name: ClassVar[str]  # for errors

    def __init__(self) -> None:
        self._port = free_port()
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._is_up = False

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        return self._port

    def start(self) -> None:
        """Starts the server, for the first time or again; returns when it answers."""
        if self._is_up:
            raise JavaServerError(f"this {self.name} is already started")
        try:
            home = self._home or self._create_home()
            self._replace_process(self._command(home), home)
            self._await_ready(home)
        except BaseException:
            self.close()
            raise
        self._is_up = True

    def stop(self) -> None:
        """Ends the server; does nothing if it is not started."""
        if self._is_up:
            assert self._home is not None
            self._is_up = False
            # Somebody has to remove the folder if this process dies before the next start.
            self._replace_process(["sleep", "infinity"], self._home)

    def close(self) -> None:
        """Ends the server for good and removes its data; does nothing if there are none."""
        self._is_up = False
        self._end_process()
        if self._home is not None:
            shutil.rmtree(self._home)
            self._home = None

    @abstractmethod
    def _prepare(self, home: Path) -> None:
        """Writes what the server needs into its folder, before its first start."""

    @abstractmethod
    def _command(self, home: Path) -> list[str]:
        """What runs the server until SIGTERM."""

    @abstractmethod
    def _is_ready(self) -> bool:
        """Whether the server, which may not even listen yet, can be used."""

    def _create_home(self) -> Path:
        self._home = Path(tempfile.mkdtemp(prefix="headrace-server-"))
        self._prepare(self._home)
        return self._home

    def _replace_process(self, command: list[str], home: Path) -> None:
        self._end_process()
        with (home / "server.log").open("ab") as log:
            self._process = start_server(
                command, home, signal.SIGTERM, cwd=home, env=environment(), stdout=log, stderr=log
            )

    def _end_process(self) -> None:
        if self._process is not None:
            stop_server(self._process)
            self._process = None

    def _await_ready(self, home: Path) -> None:
        assert self._process is not None
        log = home / "server.log"
        deadline = time.monotonic() + _START_SECONDS
        while not self._is_ready():
            if self._process.poll() is not None:
                raise JavaServerError(f"{self.name} did not start:\n{tail(log)}")
            if time.monotonic() > deadline:
                raise JavaServerError(f"{self.name} was not ready in {_START_SECONDS:.0f} s:\n{tail(log)}")
            time.sleep(0.05)


def java_command(home: Path, jars: Sequence[Path], main: str, *arguments: str) -> list[str]:
    """Runs a main class. The JVM is set to start fast and to stay small, and leaves its traces in `home`."""
    return [
        str(find_java()),
        "-Xmx512m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:-UsePerfData",
        f"-Djava.io.tmpdir={home}",
        f"-Duser.home={home}",
        "-Dlog4j2.level=WARN",
        "-classpath",
        ":".join(map(str, jars)),
        main,
        *arguments,
    ]


def environment() -> dict[str, str]:
    """No variable of the caller, such as AWS_PROFILE or JAVA_TOOL_OPTIONS, may reach a server."""
    return {"PATH": os.defpath, "LC_ALL": "C.UTF-8"}


def http_status(port: int, path: str) -> int | None:
    """What a server answers; None if it does not."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, HTTPException):
        return None
    finally:
        connection.close()


def write_properties(path: Path, properties: dict[str, str]) -> None:
    """A properties file, which only its owner can read: there are secrets in some."""
    path.touch(mode=0o600)
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
