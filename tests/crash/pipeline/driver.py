"""`headrace run`, but that it is killed, with everything it started, when a step was done for the nth time.

    python -m tests.crash.pipeline.driver headrace.yaml "decided" 2

With a fourth argument, `freeze`, it is only stopped, and everybody else runs on; with `fail`, the step fails.
"""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from headrace.cli.run_output import Lines
from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import Trigger
from headrace.testing.faults import freeze_here


class Killer(Lines):
    def __init__(self, step: str, occurrence: int, how: str) -> None:
        super().__init__()
        self._step, self._left, self._how = step, occurrence, how

    def step(self, name: str, step: str) -> None:
        print(f"step {step}", flush=True)  # noqa: T201 - the test reads it
        self._left -= step == self._step
        if self._left:
            return
        self._left = -1
        match self._how:
            case "freeze":
                freeze_here()
            case "fail":
                raise ConfigError("as if this step had failed")
            case _:
                os.killpg(0, signal.SIGKILL)


def main(file: str, step: str = "", occurrence: str = "1", how: str = "kill") -> None:
    settings = load_config(Path(file)).pipeline_settings()
    once = tuple(replace(one, trigger=Trigger(once=True)) for one in settings.materializations)
    runner = Runner(replace(settings, materializations=once), Killer(step, int(occurrence), how))
    runner.run()
    for error in runner.failures.values():
        sys.stderr.write(f"failed: {error.to_json()}\n")
    sys.stdout.flush()
    os._exit(len(runner.failures))


if __name__ == "__main__":
    main(*sys.argv[1:])
