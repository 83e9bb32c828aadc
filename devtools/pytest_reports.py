"""A pytest plugin that explains failures with logs and child output, and reports where the time went."""

from __future__ import annotations

import os
import shlex
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from devtools.free_memory import free_memory
from devtools.processes import tail_of
from devtools.pytest_scheduling import ORDER_VARIABLE
from devtools.server import Server, starts

_MOST_CHILDREN = 50
_MOST_BYTES = 1 << 16
_GIGABYTE = 1 << 30
_MEMORY_WANTED = 8 * _GIGABYTE

SEED_VARIABLE = "HEADRACE_SOAK_SEED"
"""Environment variable that random tests take their seed from."""
SERVERS_USED = pytest.StashKey[dict[str, Server]]()
"""Shared servers that this process has used, by kind."""
_STARTS = pytest.StashKey[list[tuple[str, float]]]()
"""Server starts that the workers have reported to the controlling process."""


@dataclass
class _Output:
    """A regular file that a child process writes its output to."""

    process: subprocess.Popen[Any]
    descriptor: int
    begin: int

    def text(self) -> str:
        size = os.fstat(self.descriptor).st_size
        begin = max(self.begin, size - _MOST_BYTES)
        return os.pread(self.descriptor, size - begin, begin).decode(errors="replace")

    def describe(self) -> str:
        arguments: Any = self.process.args
        command = arguments if isinstance(arguments, str) else shlex.join(map(str, arguments))
        code = self.process.poll()
        state = "is running" if code is None else f"ended with {code}"
        return f"{_shortened(command)}\n({state}; its last lines:)\n{tail_of(self.text())}"


class _Children:
    """Records the output of every child process that the current test has started.

    Output that goes to a pipe is not recorded; the test reads it itself.
    """

    def __init__(self) -> None:
        self._outputs: list[_Output] = []
        self._start = subprocess.Popen.__init__

    def watch(self) -> None:
        start, opened, outputs = self._start, self._opened, self._outputs

        def started(process: subprocess.Popen[Any], *arguments: Any, **options: Any) -> None:
            # Before the start: the child may have written its last words when that returns.
            output = opened(process, options.get("stdout")) or opened(process, options.get("stderr"))
            if output is not None:
                outputs.append(output)
            start(process, *arguments, **options)

        subprocess.Popen.__init__ = started  # type: ignore[method-assign, assignment]

    def unwatch(self) -> None:
        subprocess.Popen.__init__ = self._start  # type: ignore[method-assign]
        self.forget()

    def forget(self) -> None:
        for output in self._outputs:
            os.close(output.descriptor)
        self._outputs.clear()

    def describe(self) -> str:
        return "\n\n".join(output.describe() for output in self._outputs if output.text().strip())

    def _opened(self, process: subprocess.Popen[Any], target: Any) -> _Output | None:
        number = target if isinstance(target, int) else target.fileno() if hasattr(target, "fileno") else -1
        if number < 0 or len(self._outputs) >= _MOST_CHILDREN:
            return None
        about = os.fstat(number)
        if not stat.S_ISREG(about.st_mode) or not os.access(f"/proc/self/fd/{number}", os.R_OK):
            return None
        # Opened by path, because the child's own descriptor is often write-only.
        reading = os.open(f"/proc/self/fd/{number}", os.O_RDONLY)
        return _Output(process, reading, about.st_size)


class _ServerLogs:
    """Records what each shared server has logged since the test began."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._begin: dict[Path, int] = {}

    def begin(self) -> None:
        self._begin = {log: log.stat().st_size for log in self._logs() if log.exists()}

    def describe(self) -> str:
        parts = []
        for log in self._logs():
            if log.exists():
                with log.open("rb") as lines:
                    lines.seek(self._begin.get(log, 0))
                    text = lines.read()[-_MOST_BYTES:].decode(errors="replace")
                if text.strip():
                    parts.append(f"{log}\n{tail_of(text)}")
        return "\n\n".join(parts)

    def _logs(self) -> list[Path]:
        used = self._config.stash.get(SERVERS_USED, None)
        return [server.log for server in used.values()] if used else []


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_STARTS] = []
    config.pluginmanager.register(_FailureContext(config), "headrace-explaining")


class _FailureContext:
    """Adds to a failure the output of its servers and children, and the command that runs the test again."""

    def __init__(self, config: pytest.Config) -> None:
        self._children = _Children()
        self._logs = _ServerLogs(config)

    def pytest_sessionstart(self) -> None:
        self._children.watch()

    def pytest_unconfigure(self) -> None:
        self._children.unwatch()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._children.forget()
        self._logs.begin()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[None]:
        report = cast(pytest.TestReport, (yield))
        if report.failed:
            for title, text in (
                ("Child processes", self._children.describe()),
                ("Servers", self._logs.describe()),
                ("Run it again", _command_again(item.nodeid)),
            ):
                if text:
                    report.sections.append((title, text))
        return report  # type: ignore[return-value]


def pytest_report_header() -> list[str]:
    lines = []
    if order := os.environ.get(ORDER_VARIABLE):
        lines.append(f"files in random order: {ORDER_VARIABLE}={order}")
    if (free := free_memory()) < _MEMORY_WANTED:
        lines.append(
            f"There are {free / _GIGABYTE:.1f} GB of free memory; the tests with Spark and servers want"
            f" {_MEMORY_WANTED / _GIGABYTE:.0f}, and with less they may fail."
        )
    return lines


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["starts"] = list(starts)
    else:
        session.config.stash[_STARTS] += starts


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    output = getattr(node, "workeroutput", {})
    node.config.stash[_STARTS] += [tuple(one) for one in output.get("starts", [])]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    started: dict[str, list[float]] = {}
    for name, seconds in config.stash[_STARTS]:
        started.setdefault(name, []).append(seconds)
    if not started:
        return
    terminalreporter.section("started")
    for name, times in sorted(started.items(), key=lambda one: -sum(one[1])):
        how_often = f", {len(times)} times" if len(times) > 1 else ""
        terminalreporter.write_line(f"{sum(times):7.1f} s  {name}{how_often}")
    total = sum(map(sum, started.values()))
    terminalreporter.write_line(f"{total:7.1f} s  in all, of servers and Spark sessions")


def _command_again(nodeid: str) -> str:
    names = ("CI", ORDER_VARIABLE, SEED_VARIABLE)
    variables = [f"{name}={os.environ[name]}" for name in names if name in os.environ]
    python = os.path.relpath(sys.executable)
    return shlex.join([*variables, python, "-m", "pytest", nodeid])


def _shortened(command: str, most: int = 300) -> str:
    return command if len(command) <= most else f"{command[: most // 2]} ... {command[-most // 2 :]}"
