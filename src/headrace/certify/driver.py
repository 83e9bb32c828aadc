"""The process of a certification's pipelines, which is killed, frozen, and started again.

    python -m headrace.certify.driver headrace.yaml

It does what `headrace run` does, once for each line `run` that it reads, up to the end of what is there, and
tells everything in lines of JSON.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any

from headrace.config import load_config
from headrace.errors import HeadraceError
from headrace.faults import reached
from headrace.pipeline.committing import RetryPolicy
from headrace.pipeline.guarantee import Compiled
from headrace.pipeline.plan import needs
from headrace.pipeline.progress import EpochProgress
from headrace.pipeline.runner import Runner
from headrace.pipeline.settings import PipelineSettings, Trigger
from headrace.spark.session import make_session

# A sink waits at its fault point until the other lanes reach theirs; that does not mean it is stuck.
_RETRY_POLICY = RetryPolicy(first_pause=0.2, longest_pause=2.0, answer_within=86_400.0)


class Told:
    """A reporter that tells the process which has started this one."""

    def __init__(self) -> None:
        self._lock = Lock()

    def planned(self, name: str, compiled: Compiled, actions: str) -> None:  # noqa: ARG002
        self.say("planned", name, guarantee=compiled.guarantee)

    def state(self, name: str, text: str) -> None:
        self.say("state", name, state=text)

    def failed(self, name: str, error: HeadraceError) -> None:
        self.say("failed", name, message=error.message)

    def epoch(self, name: str, progress: EpochProgress) -> None:
        pass

    def step(self, name: str, step: str) -> None:
        """Reports the step, which also shows that the process is alive."""
        self.say("step", name, step=step)

    def say(self, event: str, lane: str = "", **more: Any) -> None:
        with self._lock:
            sys.stdout.write(json.dumps({"event": event, "lane": lane, **more}) + "\n")
            sys.stdout.flush()


def run(settings: PipelineSettings, names: set[str], told: Told) -> None:
    chosen = tuple(
        replace(one, trigger=Trigger(once=True)) for one in settings.materializations if one.name in names
    )
    runner = Runner(replace(settings, materializations=chosen), told, _RETRY_POLICY)
    try:
        runner.run()
        failures = {name: error.message for name, error in runner.failures.items()}
    except HeadraceError as error:  # before any of them was started
        failures = dict.fromkeys(names, error.message)
    told.say("ran", failures=failures)


def main(file: str) -> None:
    reached("driver started")  # before anything that a defect may stand in for
    settings = load_config(Path(file)).pipeline_settings()
    # With what all lanes need: those that are run first may do without Kafka or Hudi, and Java starts once.
    make_session(settings.spark, "headrace", needs(settings))
    told = Told()
    told.say("ready")
    for line in sys.stdin:
        run(settings, set(json.loads(line)), told)


if __name__ == "__main__":
    main(*sys.argv[1:])
