"""A scenario whose driver runs in a process of its own, on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from devtools.spark_cluster import SparkCluster
from tests.pipeline.scenario import Scenario
from tests.waiting import DEADLINE_SECONDS, wait_until

REPOSITORY = Path(__file__).parents[2]
# Starts a JVM here and others on the cluster, and runs several epochs.
_RUN_SECONDS = 2 * DEADLINE_SECONDS
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.executor.memory": "600m",
    # Executors live for seconds: starting them is most of their time.
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
}


@dataclass
class ClusterScenario(Scenario):
    packages: Path | None = None
    """Where Python finds more of them, in the driver and in its executors."""
    conf: dict[str, str] = field(default_factory=dict)
    state_in: dict[str, Any] = field(default_factory=dict)
    """`state` of the file, if it is not in the data folder."""

    def configure(self) -> Path:
        path = super().configure()
        config = yaml.safe_load(path.read_text())
        conf = config["spark"]["conf"]
        conf |= CONF | self.conf
        if self.packages:
            conf["spark.executorEnv.PYTHONPATH"] = str(self.packages)
        if self.state_in:
            config["state"] = self.state_in
        # All workers are processes of this machine.
        letters = {"location": (self.data / "state/dead-letters/view").as_uri(), "shared": True}
        config["materializations"]["view"]["dead_letters"] = letters
        path.write_text(yaml.safe_dump(config))
        return path

    def run_command(self, cluster: SparkCluster) -> list[str]:
        headrace = [sys.executable, "-m", "headrace"]
        return [*headrace, "run", str(self.configure()), "--once", "--master", cluster.master]

    def start(self, command: list[str], **environment: str) -> Driver:
        surroundings = {**os.environ, "PYSPARK_PYTHON": sys.executable, **environment}
        if self.packages:
            surroundings["PYTHONPATH"] = str(self.packages)
        return Driver(command, self.folder, surroundings)


class Driver:
    """Leaving the context kills it, with everything that it started on its side."""

    def __init__(self, command: list[str], folder: Path, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._end()

    def finish(self) -> list[int]:
        """Waits for its end, and says which epochs it has run."""
        try:
            output, _ = self._process.communicate(timeout=_RUN_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end in {_RUN_SECONDS} s:\n{self._end()}") from None
        assert self._process.returncode == 0, output
        lines = [line for line in output.splitlines() if line.startswith("view: epoch ")]
        return [int(line.split()[2].rstrip(";")) for line in lines]

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """While it runs."""
        try:
            wait_until(lambda: condition() or self._process.poll() is not None)
            assert condition(), "it has ended before"
        except AssertionError as error:
            raise AssertionError(f"it did not come to that ({error}):\n{self._end()}") from None

    def _end(self) -> str:
        """What it has printed."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.communicate()[0]
