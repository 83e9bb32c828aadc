"""Points at which faults are put: they happen once, whoever comes first, and cost nothing when off."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from headrace import faults
from headrace.errors import EndpointUnavailable
from headrace.faults import Action, Faults
from tests.waiting import DEADLINE_SECONDS, wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Faults:
    return Faults(tmp_path / "faults")


def test_points_do_nothing_in_a_process_that_was_not_told_of_a_folder() -> None:
    assert faults.VARIABLE not in os.environ
    assert faults.reached is faults._ignore


def test_nothing_happens_where_nothing_is_armed(folder: Faults) -> None:
    folder.meet("somewhere")
    assert folder.fired == set()


def test_it_happens_once(folder: Faults) -> None:
    folder.arm("a/b c.d 100%", Action.UNAVAILABLE)
    with pytest.raises(EndpointUnavailable, match=re.escape("at a/b c.d 100%")):
        folder.meet("a/b c.d 100%")
    assert folder.fired == {"a/b c.d 100%"}
    folder.meet("a/b c.d 100%")


def test_it_happens_at_the_given_occurrence(folder: Faults) -> None:
    folder.arm("here", Action.IO_ERROR, 3)
    folder.meet("here")
    folder.meet("there")
    folder.meet("here")
    with pytest.raises(OSError, match="at here") as raised:
        folder.meet("here")
    assert raised.value.errno == errno.EIO


def test_what_happened_is_known(folder: Faults) -> None:
    assert folder.happened("here") is None
    folder.arm("here", Action.IO_ERROR)
    with pytest.raises(OSError, match="at here"):
        folder.meet("here")
    assert folder.happened("here") is Action.IO_ERROR


class Gate(ModuleType):
    """A module that blocks the import of another."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.entered, self.opened = threading.Event(), threading.Event()


def test_nobody_gets_past_a_point_before_the_modules_are_there(
    folder: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate("gate")
    monkeypatch.setitem(sys.modules, "gate", gate)
    (tmp_path / "slow_to_import.py").write_text(
        "import gate\ngate.entered.set()\ngate.opened.wait()\nis_there = True\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    folder.load("slow_to_import")
    watch = faults._Watch(folder.folder)
    seen: list[bool] = []

    def pass_by() -> None:
        watch("somewhere")
        seen.append(hasattr(sys.modules.get("slow_to_import"), "is_there"))

    threads = [threading.Thread(target=pass_by) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(gate.entered.is_set, "the import")
    assert seen == []
    gate.opened.set()
    for thread in threads:
        thread.join(DEADLINE_SECONDS)
    assert seen == [True] * 3


def test_a_full_disk(folder: Faults) -> None:
    folder.arm("here", Action.DISK_FULL)
    with pytest.raises(OSError, match="at here") as raised:
        folder.meet("here")
    assert raised.value.errno == errno.ENOSPC


def test_what_is_parked_waits_until_it_is_released(folder: Faults) -> None:
    folder.arm("here", Action.PARK)
    waiting = threading.Thread(target=folder.meet, args=("here",))
    waiting.start()
    wait_until(lambda: folder.parked == {"here"})
    assert waiting.is_alive()
    folder.release("here")
    waiting.join(DEADLINE_SECONDS)
    assert not waiting.is_alive()


def test_what_is_disarmed_does_not_happen(folder: Faults) -> None:
    folder.arm("here", Action.UNAVAILABLE)
    folder.disarm()
    folder.meet("here")
    assert folder.fired == set()


@pytest.mark.processes
@pytest.mark.parametrize("action", [Action.KILL, Action.LOSE])
def test_a_process_is_killed_and_modules_are_loaded_before(folder: Faults, action: Action) -> None:
    folder.arm("here", action)
    folder.load("antigravity_is_not_a_module_of_ours", "json")
    script = "from headrace.faults import reached\nreached('here')\nprint('alive')"
    environment = {**os.environ, **folder.environment}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", script],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            start_new_session=True,
        )

    assert "No module named 'antigravity_is_not_a_module_of_ours'" in run().stderr
    folder.load("json")
    assert run().returncode == -signal.SIGKILL
    assert run().stdout == "alive\n"  # it happens once, over all processes
