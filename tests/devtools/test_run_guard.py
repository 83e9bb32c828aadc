"""What a test run has started ends with it if it is killed, and only then."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.waiting import DEADLINE_SECONDS, wait_until

REPOSITORY = Path(__file__).parents[2]
# A run whose child starts another process in a new session, as certifications do, and dies.
RUN = """
import subprocess, sys
from devtools.run_guard import RunGuard
guard = RunGuard()
start = "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True, stdout=2).pid)"
print(subprocess.check_output([sys.executable, "-c", start], text=True), end="", flush=True)
sys.stdin.readline()
guard.release()
"""

pytestmark = pytest.mark.processes


@contextmanager
def run() -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    with subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        started = psutil.Process(int(process.stdout.readline()))
        try:
            yield process, started
        finally:
            process.kill()
            process.wait(DEADLINE_SECONDS)


def test_a_killed_run_takes_everything_with_it() -> None:
    with run() as (process, started):
        process.kill()
        process.wait(DEADLINE_SECONDS)
    wait_until(lambda: not is_alive(started), "the end of what the run had started")


def test_what_a_finished_run_leaves_stays_so_that_it_is_found() -> None:
    with run() as (process, started):
        process.communicate("ended\n", timeout=DEADLINE_SECONDS)
    assert is_alive(started)
    started.kill()


def is_alive(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
