"""All lanes of a certification in one process, which has one Spark, and what is done to that process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.errors import UnexpectedFailure
from headrace.faults import Faults
from headrace.testing.freezing import freeze
from headrace.testing.orphans import end_with_us

_LOOK_EVERY = 0.05
_DONE = "done"
_TRIES = 6


class Fleet:
    """A context manager; everything that the process has started is gone when it ends."""

    def __init__(self, file: Path, faults: Faults, environment: Mapping[str, str] | None = None) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed at the end of the block
        self.faults = faults
        self.ended: dict[str, str] = {}
        """Lanes that have ended, or fail again and again, each with why it failed; empty if it did not."""
        self.is_stuck = False
        """Whether a lane goes on failing, so that nothing more can be run."""
        self._failures: Counter[str] = Counter()
        self.guarantees: dict[str, str] = {}
        self._changed = threading.Condition()
        self._heard = time.monotonic()  # when the process last reported something
        self._is_over = False
        self._process = subprocess.Popen(
            [sys.executable, "-m", "headrace.certify.driver", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, **faults.environment, **(environment or {})},
            start_new_session=True,
        )
        end_with_us(self._process.pid)
        self._listening = threading.Thread(target=self._listen, name="headrace-fleet", daemon=True)
        self._listening.start()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._log.close()

    def run(self, lanes: Collection[str]) -> None:
        """Begins to run them, from their recovery to the end of what is there."""
        self.ended = {}
        self._failures.clear()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # `wait` tells why
            self._process.stdin.write(json.dumps(sorted(lanes)) + "\n")
            self._process.stdin.flush()

    def wait(self, is_enough: Callable[[], bool], silent_seconds: float) -> bool:
        """Returns True once the condition holds, or False once the process has been silent for that long.

        The process reports every step, so a slow machine is not mistaken for a lane that hangs. Fails if the
        process ends by itself.
        """
        self._heard = time.monotonic()
        while not is_enough():
            if self._is_over:
                raise UnexpectedFailure(f"the pipelines' process ended by itself:\n{self.log_tail()}")
            if time.monotonic() - self._heard > silent_seconds:
                self.is_stuck = True
                return False
            with self._changed:
                self._changed.wait(_LOOK_EVERY)
        return True

    def kill(self) -> None:
        """kill -9, for every process of the session: Python, Spark's JVM, and Spark's workers."""
        for process in self._session():
            with suppress(psutil.Error):
                process.kill()
        self._process.wait()
        self._listening.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def freeze(self) -> None:
        for process in self._session():
            with suppress(ProcessLookupError):
                freeze(process.pid)

    def thaw(self) -> None:
        for process in reversed(self._session()):
            with suppress(psutil.Error):
                process.resume()

    def log_tail(self, lines: int = 30) -> str:
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), min(size, 1 << 16), max(0, size - (1 << 16)))
        return "\n".join(text.decode(errors="replace").splitlines()[-lines:])

    def _session(self) -> list[psutil.Process]:
        """This process first."""
        found = []
        for pid in psutil.pids():
            with suppress(psutil.Error, ProcessLookupError, PermissionError):
                if os.getsid(pid) == self._process.pid:
                    found.append(psutil.Process(pid))
        return sorted(found, key=lambda process: process.pid != self._process.pid)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            with self._changed:
                self._heard = time.monotonic()
                self._note(told)
                self._changed.notify_all()
        self._is_over = True

    def _note(self, told: dict[str, object]) -> None:
        lane = str(told["lane"])
        match told["event"]:
            case "planned":
                self.guarantees[lane] = str(told["guarantee"])
            case "state":
                state = str(told["state"])
                if state == _DONE:
                    self.ended[lane] = ""
                elif state.startswith("failed, "):
                    self._failures[lane] += 1
                    if self._failures[lane] >= _TRIES:
                        self.ended[lane] = state.partition(": ")[2]
                        self.is_stuck = True
            case "failed":
                self.ended[lane] = str(told["message"])
            case "ran":
                failures = told["failures"]
                assert isinstance(failures, dict)
                self.ended |= failures
