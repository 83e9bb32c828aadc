"""Children end, whatever happens to the bench."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.bench.children import Child, cpu_us_per_write, own_server
from headrace.errors import ServerUnavailable, UnexpectedFailure
from tests.waiting import wait_until

COMMAND = {"url": "grpc://127.0.0.1:1", "collection": "bench", "writes": 10}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.processes
def test_a_child_says_why_it_has_no_result() -> None:
    with Child("headrace.bench.load", COMMAND) as child, pytest.raises(ServerUnavailable):
        child.result()


@pytest.mark.processes
def test_a_child_that_dies_is_noticed_with_its_last_words() -> None:
    failure = pytest.raises(UnexpectedFailure, match="No module named")
    with Child("headrace.bench.no_such_module", {}) as child, failure:
        child.receive()


@pytest.mark.full  # it is killed in the next one
@pytest.mark.processes
def test_a_server_and_its_folder_are_gone_after_the_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with own_server() as server:
        assert server.url.startswith("grpc://127.0.0.1:")
        assert server.cpu_seconds() is not None
        assert list(tmp_path.iterdir())
    assert list(tmp_path.iterdir()) == []
    assert server.cpu_seconds() is None


@pytest.mark.processes
def test_children_and_folders_go_when_the_bench_is_killed(tmp_path: Path) -> None:
    code = (
        "import time\nfrom headrace.bench.children import own_server\n"
        "with own_server() as server:\n print(server._pid, flush=True)\n time.sleep(600)"
    )
    bench = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert bench.stdout is not None
    pid = int(bench.stdout.readline())
    assert list(tmp_path.iterdir())
    bench.kill()
    bench.wait()
    bench.stdout.close()
    wait_until(lambda: not is_alive(pid), "the end of the child, which must not outlive its parent")
    wait_until(lambda: not list(tmp_path.iterdir()), "the end of its folder")


def test_processor_time_too_small_for_its_clock_is_not_reported() -> None:
    assert cpu_us_per_write(1.0, 1.05, 100) is None
    assert cpu_us_per_write(None, 1.0, 100) is None
    assert cpu_us_per_write(1.0, 3.0, 1_000_000) == pytest.approx(2.0)
