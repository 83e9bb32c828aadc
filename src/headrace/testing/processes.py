"""Runs a connector in a separate process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence

from headrace.errors import UnexpectedFailure
from headrace.protocol.grpc import GrpcConnector
from headrace.testing.orphans import end_with_us


class ConnectorProcess:
    """Runs `headrace connector NAME` on a free local port, or another command with the same options."""

    def __init__(self, name: str, command: Sequence[str] = ()) -> None:
        self._process = subprocess.Popen(
            [*(command or (sys.executable, "-m", "headrace", "connector")), name, "--grpc", "127.0.0.1:0"],
            stdout=subprocess.PIPE,
            text=True,
        )
        end_with_us(self._process.pid)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if "listens on" not in line:
            raise UnexpectedFailure(f"connector {name} did not start: exit {self._process.wait()}")
        self.address = line.rsplit(" ", 1)[1].strip()
        self.client = GrpcConnector(self.address)

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Kills it like kill -9: no handler runs, nothing is flushed."""
        self._process.kill()
        self._process.wait()

    def terminate(self) -> None:
        """Asks it to stop, as a supervisor does."""
        self._process.terminate()

    def wait_until_frozen(self) -> None:
        """Returns once the process has stopped itself with SIGSTOP, or has ended."""
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Resumes a frozen process."""
        self._process.send_signal(signal.SIGCONT)

    def wait(self, timeout: float = 60) -> int:
        return self._process.wait(timeout)

    def __enter__(self) -> ConnectorProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
