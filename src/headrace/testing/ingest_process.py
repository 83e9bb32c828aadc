"""Runs an ingest server in a separate process, to be killed, frozen and restarted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from headrace.errors import UnexpectedFailure
from headrace.testing.freezing import freeze
from headrace.testing.orphans import end_with_us
from headrace.testing.ports import draw_port

_LISTENS = "listens on "
_START_SECONDS = 120.0
_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.01


class IngestProcess:
    """Runs `headrace serve` on a free local port, and keeps the port across restarts.

    It is a context manager that starts the server. The server also ends when this process dies. `options` are
    added to the command line, `environment` to the environment of this process.
    """

    def __init__(
        self,
        data: Path,
        *options: str,
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        """May be changed while the server is not running."""
        self.port, self._port_lock = draw_port()
        self.url = f"grpc://127.0.0.1:{self.port}"
        self._serve = list(command or (sys.executable, "-m", "headrace", "serve"))
        self._options = ["--port", str(self.port), "--metrics-port", "0", *options]
        self._environment = {**os.environ, **(environment or {})}
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end of the block
        self._process: subprocess.Popen[bytes] | None = None
        self._began = 0

    def start(self) -> None:
        """Returns once the server is listening."""
        self.begin()
        self.wait_until_ready()

    def begin(self) -> None:
        """Starts the server without waiting for it."""
        self._began = os.fstat(self._log.fileno()).st_size
        command = [*self._serve, "--data", str(self.data), *self._options]
        self._process = subprocess.Popen(command, stdout=self._log, stderr=self._log, env=self._environment)
        end_with_us(self._process.pid)

    def wait_until_ready(self, timeout: float = _START_SECONDS) -> None:
        deadline = time.monotonic() + timeout
        while _LISTENS not in self.output():
            if self.process.poll() is not None:
                raise UnexpectedFailure(f"the server ended with {self.process.poll()}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise UnexpectedFailure(f"the server was not ready in {timeout:.0f} s:\n{self.log_tail()}")
            time.sleep(_POLL_SECONDS)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kills it like kill -9: no handler runs, nothing is flushed."""
        self._end(signal.SIGKILL)

    def terminate(self) -> int:
        """Asks it to stop, as a supervisor does, and returns its exit code."""
        return self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Freezes it at an arbitrary point; returns once no thread of it runs."""
        freeze(self.process.pid)

    def resume(self) -> None:
        """Resumes a frozen process."""
        self.process.send_signal(signal.SIGCONT)

    def output(self) -> str:
        """Returns its output since it was last started."""
        return self._read(self._began)

    def log_tail(self, lines: int = 30) -> str:
        return "\n".join(self._read(0).splitlines()[-lines:])

    def __enter__(self) -> IngestProcess:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if self.is_running:
            self.kill()
        if error is not None:
            error.add_note(f"The server on {self.data} said at last:\n{self.log_tail()}")
        self._log.close()
        self._port_lock.close()

    def _end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(_STOP_SECONDS)

    def _read(self, begin: int) -> str:
        # Its own position: the server's is the same file's.
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size - begin, begin).decode(errors="replace")


def without_pandas(folder: Path) -> dict[str, str]:
    """Returns the environment of a server that cannot import pandas, using a module written into `folder`.

    Arrow imports pandas where it is installed, as it is for the client's tests. No server needs it, and
    importing it takes a third of a server's start.
    """
    hidden = folder / "without_pandas"
    hidden.mkdir(exist_ok=True)
    (hidden / "pandas.py").write_text("raise ImportError('not for servers')\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(hidden), os.environ.get("PYTHONPATH")]))}
