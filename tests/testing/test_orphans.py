"""A child ends with its parent, but a process that has reused its id is not killed."""

from __future__ import annotations

import subprocess
import sys

import psutil
import pytest

from tests.liveness import is_alive
from tests.waiting import DEADLINE_SECONDS, wait_until

OWNER = """
import subprocess, sys
from headrace.testing.orphans import _WATCHER_OF_US, end_with_us
children = [subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL) for _ in range(4)]
end_with_us(children[0].pid)
for child in children[1:3]:
    _WATCHER_OF_US.watch(child.pid, "1")  # the start time of a process that had this id before
end_with_us(children[3].pid)
leader = subprocess.Popen(
    ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, text=True, start_new_session=True
)
end_with_us(leader.pid)
print(leader.stdout.readline(), flush=True, end="")
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
"""

pytestmark = pytest.mark.processes


def test_children_end_with_a_killed_parent() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        try:
            in_session = psutil.Process(int(owner.stdout.readline()))
            first, *others, last = [psutil.Process(int(pid)) for pid in owner.stdout.readline().split()]
        finally:
            owner.kill()
            owner.wait(DEADLINE_SECONDS)
    try:
        wait_until(lambda: not any(map(is_alive, [first, last, in_session])), "the end of the children")
        assert all(map(is_alive, others))
    finally:
        for one in others:
            one.kill()
