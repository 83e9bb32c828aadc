"""Runs long commands: their output goes to a file, and Ctrl-C ends everything that they have started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
# Longer than the clean shutdown of any of our servers takes.
_END_SECONDS = 120.0
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# A parameter in brackets may contain spaces and dashes; the error follows the dash after it.
_FAILED = re.compile(r"(?:FAILED|ERROR) (\S+?\.py(?:::[^\s\[]+(?:\[.*?\])?)?)(?: - .*)?")


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """Runs a command in the repository and returns its exit code. `environment` is added to ours.

    When interrupted, it interrupts the command as Ctrl-C in a terminal would, waits for it to end, and
    raises.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with log.open("ab") as output, _defer_interrupts():
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # so that it gets Ctrl-C only once, from us
            )
        return process.wait()
    except BaseException:
        if process is not None:
            _end_group(process)
        raise


def failed_tests(output: str) -> list[str]:
    """Extracts the failed tests, and files that cannot be collected, from pytest's short summary."""
    lines = (_COLOURS.sub("", line).rstrip() for line in output.splitlines())
    found = (_FAILED.fullmatch(line) for line in lines)
    return list(dict.fromkeys(match[1] for match in found if match))


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP act like Ctrl-C, so that the process ends what it has started."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _INTERRUPTING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _defer_interrupts() -> Iterator[None]:
    """Defers Ctrl-C to the end of the block, so that we know the id of every process we start."""
    kept: list[int] = []
    before = {number: signal.signal(number, lambda one, _: kept.append(one)) for number in _INTERRUPTING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if kept:
        raise KeyboardInterrupt


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGINT)
        process.wait(_END_SECONDS)
    except ProcessLookupError:
        process.wait()
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
