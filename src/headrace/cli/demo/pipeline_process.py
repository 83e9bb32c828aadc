"""Runs `headrace run` in a separate process, which is frozen, killed and restarted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from headrace.cli.demo.sales import VIEW, Places
from headrace.config import load_config
from headrace.errors import UnexpectedFailure
from headrace.pipeline.state_paths import open_recovery_log

_STOP_SECONDS = 60.0
_POLL_SECONDS = 0.02
_TAIL_LINES = 30


class PipelineProcess:
    """A context manager that leaves nothing running. It does not start the process."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._log = open_recovery_log(load_config(places.file).pipeline_settings(), VIEW)
        self._output, self._errors = places.folder / "pipeline.jsonl", places.folder / "pipeline.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0

    def start(self) -> None:
        """Starts the process without waiting for it."""
        environment = {**os.environ, "TMPDIR": str(self._places.scratch)}
        with self._output.open("ab") as output, self._errors.open("ab") as errors:
            # In a session of its own: kill -9 takes all of it, and Ctrl-C is for the demo alone.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "headrace", "run", str(self._places.file), "--json"],
                stdout=output,
                stderr=errors,
                cwd=self._places.folder,
                env=environment,
                start_new_session=True,
            )

    def news(self) -> Iterator[dict[str, Any]]:
        """Yields what it has printed since the last call."""
        if not self._output.exists():
            return
        with self._output.open("rb") as output:
            output.seek(self._read)
            for line in output:
                if not line.endswith(b"\n"):
                    return  # the rest of it is still to come, or never will
                self._read += len(line)
                with suppress(ValueError):
                    yield json.loads(line)

    def check(self) -> None:
        """Raises if it has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise UnexpectedFailure(f"the pipeline ended with {self._process.returncode}:\n{self.log_tail()}")

    def decided(self) -> int:
        """Returns the last decided epoch, or -1 if there is none."""
        decision = self._log.read().decision
        return -1 if decision is None else decision.epoch

    def kill_in_an_epoch(self, after: int) -> int | None:
        """Kills it with kill -9 if it is in the middle of an epoch later than `after`, and says which.

        It is frozen first, so that it is still inside that epoch when it is killed.
        """
        if self._epoch_under_way(after) is None:
            return None
        assert self._process is not None
        self._signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)
        epoch = self._epoch_under_way(after)
        if epoch is None:
            self._signal(signal.SIGCONT)
            return None
        self.kill()
        return epoch

    def kill(self) -> None:
        """Kills it with everything that it has started: the JVM and Spark's workers."""
        if self._process is None:
            return
        self._signal(signal.SIGKILL)
        self._process.wait(_STOP_SECONDS)
        # Workers are in a process group of their own, and end when their connection is closed.
        until = time.monotonic() + _STOP_SECONDS
        while (left := _members(self._process.pid)) and time.monotonic() < until:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)
        self._process = None

    def stop(self) -> None:
        """Stops it in good order."""
        assert self._process is not None
        self._process.terminate()
        if self._process.wait(_STOP_SECONDS) != 0:
            self.check()
        self.kill()

    def log_tail(self) -> str:
        lines = self._errors.read_text(errors="replace").splitlines() if self._errors.exists() else []
        return "\n".join(lines[-_TAIL_LINES:])

    def __enter__(self) -> PipelineProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.kill()
        if error is not None and self.log_tail():
            error.add_note(f"The pipeline said at last:\n{self.log_tail()}")

    def _epoch_under_way(self, after: int) -> int | None:
        """Returns the epoch that Spark has planned and whose dead letters are staged, but that is not
        decided."""
        planned = max(_numbers(self._places.state / "checkpoint/offsets"), default=-1)
        if planned <= after or not any(self._places.dead_letters.glob(f"_staged/{planned:020}-*/*.parquet")):
            return None
        return planned if planned > self.decided() else None

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(path.name) for path in folder.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return []


def _members(session: int) -> list[int]:
    """Returns the processes of a session, if the system can list them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may hold anything.
            state, _, _, sid = path.read_text().rpartition(")")[2].split()[:4]
            if int(sid) == session and state != "Z":
                found.append(int(path.parent.name))
    return found
