"""Runs the driver of a scenario in a separate process and freezes or kills it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headrace.faults import Faults
from tests.pipeline.scenario import Scenario
from tests.waiting import DEADLINE_SECONDS

REPOSITORY = Path(__file__).parents[3]
_RUN_SECONDS = 5 * DEADLINE_SECONDS  # includes the start of the JVM and Spark, and several epochs


@dataclass
class Ran:
    """What a run of the driver printed, and how it ended."""

    returncode: int
    output: str

    @property
    def was_killed(self) -> bool:
        return self.returncode == -signal.SIGKILL

    @property
    def epochs(self) -> list[int]:
        """Those that were decided, in order."""
        lines = [line for line in self.output.splitlines() if line.startswith("view: epoch ")]
        return [int(line.split()[2].rstrip(";")) for line in lines]


class Driver:
    """A run that has begun, in a session of its own; as a context it leaves nobody behind, frozen or not."""

    def __init__(self, scenario: Scenario, *arguments: str, faults: Faults | None = None) -> None:
        """`faults` are injected at the points of `headrace.faults`."""
        command = [sys.executable, "-m", "tests.crash.pipeline.driver", str(scenario.configure()), *arguments]
        self.process = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={
                **os.environ,
                "PYTHONPATH": str(REPOSITORY),
                **(faults.environment if faults else {}),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            self.kill()
            self.process.communicate()

    def wait_until_frozen(self) -> None:
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        if not os.WIFSTOPPED(status):
            raise AssertionError(f"it ended before it came there:\n{self.end().output}")

    def thaw(self) -> None:
        os.kill(self.process.pid, signal.SIGCONT)

    def end(self) -> Ran:
        try:
            output, _ = self.process.communicate(timeout=_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            output, _ = self.process.communicate()
            raise AssertionError(f"it did not end in {_RUN_SECONDS:.0f} s:\n{output}") from None
        return Ran(self.process.returncode, output)

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)


def finish(scenario: Scenario) -> Ran:
    """Runs the scenario until everything is read."""
    ran = Driver(scenario).end()
    assert ran.returncode == 0, ran.output
    return ran
