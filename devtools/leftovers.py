"""Checks that tests leave nothing behind, however they end.

python -m devtools.leftovers
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from enum import StrEnum

import click

from devtools.footprint import Footprint
from devtools.processes import tail
from devtools.running import REPOSITORY, interrupted_by_signals

EXAMPLES = """\b
Examples:
  python -m devtools.leftovers
  python -m devtools.leftovers --end ctrl-c --workers 0
  python -m devtools.leftovers tests/sinks/test_kafka_sink.py"""

_PART = "tests/devtools/everything_running.py"
_HELD = ("spark", "servers")
_SPARK = "org.apache.spark.deploy.SparkSubmit"
# Limit of each wait. A loaded machine needs a tenth of it.
_DEADLINE_SECONDS = 300.0


class End(StrEnum):
    NORMAL = "normal"
    CTRL_C = "ctrl-c"
    EARLY_CTRL_C = "early-ctrl-c"
    KILL = "kill"


_SENTENCES = {
    End.NORMAL: "ended by itself",
    End.CTRL_C: "Ctrl-C while everything ran",
    End.EARLY_CTRL_C: "Ctrl-C while Spark started",
    End.KILL: "kill -9 of pytest while everything ran",
}


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("tests", nargs=-1, metavar="[NODE_ID...]")
@click.option(
    "--end",
    "ends",
    type=click.Choice([str(one) for one in End]),
    multiple=True,
    help="Only this way to end; may be repeated.  [default: all]",
)
@click.option(
    "--workers", type=click.IntRange(min=0), default=2, show_default=True, help="Processes of pytest-xdist's."
)
def main(tests: tuple[str, ...], ends: tuple[str, ...], workers: int) -> None:
    """Runs a few tests with Spark and every server, ends them in several ways, and reports what is left.

    If you pass tests of your own (NODE_ID), they are interrupted as soon as a Java process runs. Exits with 1
    if a process, a listening port or a file is left; each is reported, and killed or removed.
    """
    is_clean = True
    for end in map(End, ends or End):
        began = time.monotonic()
        left = leftovers(end, tests, workers)
        seconds = time.monotonic() - began
        click.echo(f"{_SENTENCES[end]}: {len(left) or 'nothing'} left ({seconds:.0f} s)")
        for line in left:
            click.echo(f"  {line}")
        is_clean = is_clean and not left
    if not is_clean:
        raise SystemExit(1)


def leftovers(end: End, tests: Sequence[str] = (), workers: int = 2) -> list[str]:
    """Ends a run in the given way and returns a line for each leftover and each other problem."""
    footprint = Footprint()
    # Our own handler makes pytest react to Ctrl-C even if we were started with SIGINT ignored.
    with interrupted_by_signals():
        run = _Run(footprint, tests, workers, end)
        try:
            trouble = run.end()
            footprint.wait(lambda: not footprint.left(), _DEADLINE_SECONDS)
            return [*trouble, *footprint.left()]
        finally:
            run.kill()
            footprint.remove()


class _Run:
    def __init__(self, footprint: Footprint, tests: Sequence[str], workers: int, end: End) -> None:
        self._footprint, self._folder, self._tests, self._end = footprint, footprint.home, tests, end
        self._log = footprint.home / "pytest.log"
        environment = {**os.environ, **footprint.environment}
        if end is not End.NORMAL:
            environment["HEADRACE_HOLD_TESTS"] = str(footprint.home)
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--numprocesses={workers}"]
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [*command, *(tests or [_PART])],
                cwd=REPOSITORY,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # a process group to send Ctrl-C to, as a terminal does
            )

    def end(self) -> list[str]:
        """Ends the run and returns what did not go as expected."""
        if self._end is End.NORMAL:
            if self._has_ended() and self._process.returncode == 0:
                return []
            return [f"pytest did not pass:\n{tail(self._log)}"]
        self._footprint.wait(lambda: self._is_to_be_ended() or self._is_over(), _DEADLINE_SECONDS)
        if self._is_over() or not self._is_to_be_ended():
            return [f"pytest did not come to where it was to be ended:\n{tail(self._log)}"]
        if self._end is End.KILL:
            self._process.kill()
        else:
            os.killpg(self._process.pid, signal.SIGINT)
        if not self._has_ended():
            return [f"pytest did not end in {_DEADLINE_SECONDS:.0f} s:\n{tail(self._log)}"]
        return []

    def kill(self) -> None:
        if not self._is_over():
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def _is_to_be_ended(self) -> bool:
        if self._end is End.EARLY_CTRL_C:
            return any(_SPARK in command for command in self._footprint.commands)
        if self._tests:
            return any("java" in command for command in self._footprint.commands)
        return all((self._folder / name).exists() for name in _HELD)

    def _is_over(self) -> bool:
        return self._process.poll() is not None

    def _has_ended(self) -> bool:
        return self._footprint.wait(self._is_over, _DEADLINE_SECONDS)


if __name__ == "__main__":
    main(prog_name="python -m devtools.leftovers")
