"""Runs `make test` repeatedly, with a new order of test files each time, alone and under load.

python -m devtools.repeat 6
"""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import click

from devtools.load import loaded
from devtools.pytest_scheduling import ORDER_VARIABLE
from devtools.running import failed_tests, interrupted_by_signals, run_logged

EXAMPLES = """\b
Examples:
  python -m devtools.repeat 6
  python -m devtools.repeat 2 --loaded --logs logs
  python -m devtools.repeat 20 -- .venv/bin/pytest tests/client"""

_COMMAND = ("make", "test")
_ALONE, _LOADED = "alone", "under load"
_INTERRUPTED = 130


@dataclass(frozen=True)
class Run:
    number: int
    surroundings: str
    seconds: float
    exit_code: int | None
    """None if the run was interrupted."""
    seed: int
    failures: tuple[str, ...] = ()

    @property
    def is_red(self) -> bool:
        return self.exit_code not in (0, None)

    @property
    def verdict(self) -> str:
        if self.exit_code is None:
            return "interrupted"
        if not self.is_red:
            return "passed"
        return f"{len(self.failures)} failed" if self.failures else f"exit code {self.exit_code}"

    def __str__(self) -> str:
        return (
            f"run {self.number:>3}  {self.surroundings:<10}  {self.seconds:>7.1f} s  {self.verdict:<13}"
            f"  {ORDER_VARIABLE}={self.seed}"
        )


@click.command(epilog=EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", metavar="N", type=click.IntRange(min=1))
@click.argument("command", nargs=-1, metavar="[-- COMMAND...]", type=click.UNPROCESSED)
@click.option("--alone", "only", flag_value=_ALONE, type=str, help="Never beside a load.")
@click.option("--loaded", "only", flag_value=_LOADED, type=str, help="Always beside a load.")
@click.option(
    "--logs",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the output of each run in this folder.  [default: a temporary one, kept if a run is red]",
)
def main(runs: int, command: tuple[str, ...], only: str | None, logs: Path | None) -> None:
    """Runs `make test`, or COMMAND, N times and reports which tests failed, how often, and in which runs.

    Each run uses a different order of test files. Every second run is under load: two processes use a core
    each, and one fills the page cache and syncs it. Exits with 1 if a run failed.
    """
    folder = logs or Path(tempfile.mkdtemp(prefix="headrace-repeat-"))
    folder.mkdir(parents=True, exist_ok=True)
    done: list[Run] = []

    def note(run: Run) -> None:
        click.echo(run)
        done.append(run)

    click.echo(f"output in {folder}")
    try:
        with interrupted_by_signals():
            repeat(runs, command or _COMMAND, only, folder, note)
    except KeyboardInterrupt:
        click.echo(summary(done))
        raise SystemExit(_INTERRUPTED) from None
    click.echo(summary(done))
    if any(run.is_red for run in done):
        raise SystemExit(1)
    if logs is None:
        shutil.rmtree(folder)


def repeat(
    runs: int, command: Sequence[str], only: str | None, folder: Path, note: Callable[[Run], None]
) -> None:
    """Passes each run to `note` when it has ended, including one that is interrupted."""
    for number in range(1, runs + 1):
        surroundings = only or (_ALONE if number % 2 else _LOADED)
        seed = random.SystemRandom().randrange(1 << 31)
        log = folder / f"run-{number}.log"
        log.unlink(missing_ok=True)
        code: int | None = None
        began = time.monotonic()
        try:
            with loaded() if surroundings == _LOADED else nullcontext():
                code = run_logged(command, log, {ORDER_VARIABLE: str(seed)})
        finally:
            seconds = time.monotonic() - began
            output = log.read_text(errors="replace") if log.exists() else ""
            note(Run(number, surroundings, seconds, code, seed, tuple(failed_tests(output))))


def summary(runs: Sequence[Run]) -> str:
    """Counts the runs and lists each failed test with the runs in which it failed."""
    red = [run for run in runs if run.is_red]
    ended = [run for run in runs if run.exit_code is not None]
    lines = [f"{len(ended)} runs ended: {len(ended) - len(red)} green, {len(red)} red"]
    failures: dict[str, list[int]] = {}
    for run in runs:
        for test in run.failures:
            failures.setdefault(test, []).append(run.number)
    if failures:
        lines.append(f"{'failed':>6}  {'in runs':<12}  test")
        often_first = sorted(failures.items(), key=lambda one: (-len(one[1]), one[0]))
        lines += [
            f"{len(numbers):>6}  {', '.join(map(str, numbers)):<12}  {test}" for test, numbers in often_first
        ]
    lines += [
        f"run {run.number} names no test: look at the end of run-{run.number}.log"
        for run in red
        if not run.failures
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main(prog_name="python -m devtools.repeat")
