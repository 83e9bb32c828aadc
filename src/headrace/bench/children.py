"""Child processes of the bench: servers and clients, which all end when a block does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Self

from headrace.errors import HeadraceError, UnexpectedFailure

_STOP_SECONDS = 10.0
_COMPLAINT_CHARACTERS = 2000
_LEAST_CPU_SECONDS = 0.2


class Child:
    """`python -m MODULE`, which talks as `tether` does."""

    def __init__(self, module: str, command: dict[str, Any]) -> None:
        self._module = module
        self._complaints: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            start_new_session=True,  # Ctrl-C is for the bench, which then ends its children
        )
        self.send(command)

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # what it died of is told by `receive`
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()

    def receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise UnexpectedFailure(f"{self._module} ended early{self._last_words()}")
        message: dict[str, Any] = json.loads(line)
        if "error" in message:
            raise HeadraceError.from_json(message["error"])
        return message

    def result(self, on_progress: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
        while True:
            message = self.receive()
            if "result" in message:
                result: dict[str, Any] = message["result"]
                return result
            if "progress" in message:
                on_progress(message["progress"])

    def close(self) -> None:
        """By request, and if that takes too long by force, its own children included."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            with suppress(OSError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdout.close()
            self._complaints.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _last_words(self) -> str:
        self._complaints.seek(0)
        said = self._complaints.read().decode(errors="replace").strip()
        return f": {said[-_COMPLAINT_CHARACTERS:]}" if said else ""


class Server:
    """Where a server is, and what it has cost so far."""

    def __init__(self, url: str, pid: int | None = None) -> None:
        self.url = url
        self._pid = pid

    def cpu_seconds(self) -> float | None:
        """Of its process, without its children; None if it is not ours, or the system does not tell."""
        if self._pid is None:
            return None
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_us_per_write(before: float | None, after: float | None, writes: int) -> float | None:
    """None if it was not measured, or is too little for a clock that ticks a hundred times a second."""
    if before is None or after is None or after - before < _LEAST_CPU_SECONDS:
        return None
    return (after - before) / writes * 1e6


@contextmanager
def own_server(*, commits: bool = True) -> Iterator[Server]:
    """A Headrace server with the default settings and a data folder that goes away with it.

    Without commits it takes and uploads writes, and its committer is idle.
    """
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-", ignore_cleanup_errors=True) as data,
        Child("headrace.bench.own_server", {"data": data, "commits": commits}) as child,
    ):
        yield Server(child.receive()["url"], child.pid)


@contextmanager
def floor() -> Iterator[Server]:
    """A bare Flight server that acknowledges every write and keeps nothing."""
    with Child("headrace.bench.floor", {}) as child:
        yield Server(child.receive()["url"], child.pid)
