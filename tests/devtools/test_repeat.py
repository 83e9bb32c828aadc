"""Tests are repeated in a new order each time and under load, and failures are counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from devtools.load import fill
from devtools.pytest_scheduling import ORDER_VARIABLE
from devtools.repeat import Run, main, summary
from devtools.running import failed_tests
from tests.liveness import is_alive
from tests.waiting import DEADLINE_SECONDS, wait_until

REPOSITORY = Path(__file__).parents[2]
OUTPUT = """\
ERROR    root:server.py:12 a line of a log
\x1b[31mFAILED\x1b[0m tests/a_test.py::test_one - AssertionError: assert 1 == 2
FAILED tests/a_test.py::TestIt::test_two[a - b c] - ValueError: [x] - y
FAILED tests/a_test.py::test_one - AssertionError: once more
ERROR tests/b_test.py::test_three
ERROR tests/c_test.py - ImportError: no module
ERROR: a sentence about tests/d_test.py
FAILED of nothing
2 failed, 2 errors in 0.1s
"""


def test_failures_are_read_from_the_summary() -> None:
    assert failed_tests(OUTPUT) == [
        "tests/a_test.py::test_one",
        "tests/a_test.py::TestIt::test_two[a - b c]",
        "tests/b_test.py::test_three",
        "tests/c_test.py",
    ]


def test_the_summary_counts_failures_by_test() -> None:
    runs = [
        Run(1, "alone", 1.0, 0, 5),
        Run(2, "under load", 1.0, 1, 6, ("tests/a.py::x", "tests/a.py::y")),
        Run(3, "alone", 1.0, 2, 7),
        Run(4, "alone", 1.0, 1, 8, ("tests/a.py::y",)),
        Run(5, "alone", 1.0, None, 9),
    ]
    assert summary(runs).splitlines() == [
        "4 runs ended: 1 green, 3 red",
        "failed  in runs       test",
        "     2  2, 4          tests/a.py::y",
        "     1  2             tests/a.py::x",
        "run 3 names no test: look at the end of run-3.log",
    ]


def test_the_file_of_the_load_is_bounded_and_empty_again() -> None:
    with tempfile.TemporaryFile() as file:
        fill(file, chunks=2)
        assert os.fstat(file.fileno()).st_size == 0


def test_help_has_an_example() -> None:
    assert "python -m devtools.repeat 6" in CliRunner().invoke(main, ["--help"]).output


@pytest.mark.processes
def test_each_run_has_its_own_order_and_log(tmp_path: Path) -> None:
    script = f"import os; print('order', os.environ[{ORDER_VARIABLE!r}])"
    given = ["2", "--alone", "--logs", str(tmp_path), "--", sys.executable, "-c", script]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    orders = [(tmp_path / f"run-{number}.log").read_text().split()[1] for number in (1, 2)]
    assert orders[0] != orders[1]
    for order in orders:
        assert f"passed         {ORDER_VARIABLE}={order}" in result.output


@pytest.mark.processes
def test_a_red_run_makes_it_red(tmp_path: Path) -> None:
    script = "print('FAILED tests/a.py::test_it - oh'); raise SystemExit(1)"
    result = CliRunner().invoke(main, ["1", "--logs", str(tmp_path), "--", sys.executable, "-c", script])
    assert result.exit_code == 1
    assert "1 failed" in result.output
    assert "     1  1             tests/a.py::test_it" in result.output


def running_under_load(logs: Path) -> tuple[subprocess.Popen[str], list[psutil.Process]]:
    """Starts a long command, and returns it with the three load processes beside it."""
    command = [sys.executable, "-m", "devtools.repeat", "2", "--loaded"]
    command += ["--logs", str(logs), "--", "sleep", "600"]
    repeated = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
    seen = psutil.Process(repeated.pid)
    wait_until(lambda: len(seen.children()) == 4, "the load and the command")
    return repeated, seen.children()


@pytest.mark.processes
def test_an_interrupted_run_says_what_is_known_and_ends_everything(tmp_path: Path) -> None:
    repeated, children = running_under_load(tmp_path)
    os.kill(repeated.pid, signal.SIGINT)
    output, _ = repeated.communicate(timeout=DEADLINE_SECONDS)
    assert repeated.returncode == 130
    assert "interrupted" in output
    assert "0 runs ended" in output
    wait_until(lambda: not any(map(is_alive, children)), "the end of the load and the command")


@pytest.mark.processes
def test_the_load_ends_with_a_killed_owner(tmp_path: Path) -> None:
    repeated, children = running_under_load(tmp_path)
    load = [one for one in children if "devtools.load" in one.cmdline()]
    assert len(load) == 3
    repeated.kill()
    repeated.communicate(timeout=DEADLINE_SECONDS)
    wait_until(lambda: not any(map(is_alive, load)), "the end of the load")
    for one in children:
        if is_alive(one):
            one.kill()
