"""A killed test run takes all of its processes with it; a run that ends by itself leaves them to be found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.liveness import is_alive
from tests.waiting import DEADLINE_SECONDS, wait_until

REPOSITORY = Path(__file__).parents[2]
# A run whose child starts another process in a new session, as certifications do, and dies.
RUN = """
import subprocess, sys
from pathlib import Path
from devtools.run_guard import RunGuard
guard = RunGuard(Path(sys.argv[2]))
command = ["/bin/sh", "-c", sys.argv[1]]
start = f"import subprocess; print(subprocess.Popen({command}, start_new_session=True, stdout=2).pid)"
print(subprocess.check_output([sys.executable, "-c", start], text=True), end="", flush=True)
sys.stdin.readline()
guard.release()
"""

pytestmark = pytest.mark.processes


@contextmanager
def run(
    folder: Path, command: str = "exec sleep 600"
) -> Iterator[tuple[subprocess.Popen[str], psutil.Process]]:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, command, str(folder)],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        started = psutil.Process(int(process.stdout.readline()))
        try:
            yield process, started
        finally:
            process.kill()
            process.wait(DEADLINE_SECONDS)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param("exec sleep 600", id="ends in good order"),
        pytest.param(
            "trap '' TERM; while :; do sleep 600; done", id="ignores SIGTERM", marks=pytest.mark.full
        ),
    ],
)
def test_a_killed_run_takes_everything_with_it(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "of the run"
    folder.mkdir()
    with run(folder, command) as (process, started):
        process.kill()
        process.wait(DEADLINE_SECONDS)
    wait_until(lambda: not is_alive(started), "the end of what the run had started")
    wait_until(lambda: not folder.exists(), "the end of its folder")


def test_what_a_finished_run_leaves_stays_so_that_it_is_found(tmp_path: Path) -> None:
    with run(tmp_path) as (process, started):
        process.communicate("ended\n", timeout=DEADLINE_SECONDS)
    assert is_alive(started)
    assert tmp_path.exists()
    started.kill()
