"""Runs `headrace run` until everything is read, and freezes after the nth occurrence of a step.

    python -m tests.crash.pipeline.driver headrace.yaml "decided" 2

Other processes continue. Without a step it never freezes.
"""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from headrace.cli.run_output import Lines
from headrace.config import load_config
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import Trigger
from headrace.testing.faults import freeze_here


class Freezer(Lines):
    def __init__(self, step: str, occurrence: int) -> None:
        super().__init__()
        self._step, self._left = step, occurrence

    def step(self, name: str, step: str) -> None:
        if step != self._step:
            return
        self._left -= 1
        if self._left == 0:
            freeze_here()


def main(file: str, step: str = "", occurrence: str = "1") -> None:
    settings = load_config(Path(file)).pipeline_settings()
    once = tuple(replace(one, trigger=Trigger(once=True)) for one in settings.materializations)
    runner = Runner(replace(settings, materializations=once), Freezer(step, int(occurrence)))
    runner.run()
    for error in runner.failures.values():
        sys.stderr.write(f"failed: {error.to_json()}\n")
    sys.stdout.flush()
    os._exit(len(runner.failures))


if __name__ == "__main__":
    main(*sys.argv[1:])
