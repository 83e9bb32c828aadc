"""Commands that run for minutes: their output goes to a file, and Ctrl-C ends all that they have started."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
# Longer than any of our servers takes to end in order.
_END_SECONDS = 120.0
_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# A parameter in brackets may have spaces and dashes in it; what follows the dash is the error.
_FAILED = re.compile(r"(?:FAILED|ERROR) (\S+?\.py(?:::[^\s\[]+(?:\[.*?\])?)?)(?: - .*)?")


def run_logged(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> int:
    """Runs a command in the repository and returns its exit code; `environment` is added to ours.

    When it is interrupted, it ends the command as Ctrl-C in a terminal would, waits for that, and raises.
    """
    process: subprocess.Popen[bytes] | None = None
    try:
        with log.open("ab") as output, _not_interrupted():
            process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,  # so that Ctrl-C reaches it once, from us
            )
        return process.wait()
    except BaseException:
        if process is not None:
            _end_group(process)
        raise


def failed_tests(output: str) -> list[str]:
    """The node ids in pytest's short summary of tests that failed, and of files that cannot be collected."""
    lines = (_COLOURS.sub("", line).rstrip() for line in output.splitlines())
    found = (_FAILED.fullmatch(line) for line in lines)
    return list(dict.fromkeys(match[1] for match in found if match))


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Has SIGTERM and SIGHUP end the process as Ctrl-C does, so that it ends what it has started."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _INTERRUPTING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _not_interrupted() -> Iterator[None]:
    """Keeps Ctrl-C back until the end: in the middle of a start nobody would know whom to end."""
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
