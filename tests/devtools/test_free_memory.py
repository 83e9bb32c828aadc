"""Free memory is what the machine has, within the limits of all cgroups around the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools import pytest_reports
from devtools.free_memory import free_memory

GIB = 1 << 30


def a_machine(root: Path, available: int, limits: dict[str, tuple[str, int]]) -> None:
    """Writes what Linux shows of a machine: for each cgroup its limit and how much it uses."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {available >> 10} kB\n")
    (root / "proc/self/cgroup").write_text("4:memory:/old\n0::/all/own\n")
    for name, (most, used) in limits.items():
        group = root / "sys/fs/cgroup" / name
        group.mkdir(parents=True, exist_ok=True)
        (group / "memory.max").write_text(f"{most}\n")
        (group / "memory.current").write_text(f"{used}\n")
        (group / "memory.stat").write_text("anon 5\ninactive_file 100\n")


@pytest.mark.parametrize(
    ("limits", "free"),
    [
        ({}, 8 * GIB),
        ({"all/own": ("max", 0)}, 8 * GIB),
        ({"all/own": (str(3 * GIB), GIB)}, 2 * GIB + 100),
        ({"all/own": ("max", 0), "all": (str(2 * GIB), GIB)}, GIB + 100),
        ({"all/own": (str(64 * GIB), 0)}, 8 * GIB),
    ],
    ids=["none", "unlimited", "own", "parent", "more than there is"],
)
def test_free_memory(tmp_path: Path, limits: dict[str, tuple[str, int]], free: int) -> None:
    a_machine(tmp_path, 8 * GIB, limits)
    assert free_memory(tmp_path) == free


def test_a_run_says_at_its_start_that_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest_reports, "free_memory", lambda: 2 * GIB)
    (line,) = [line for line in pytest_reports.pytest_report_header() if "memory" in line]
    assert line.startswith("There are 2.0 GB of free memory")
    monkeypatch.setattr(pytest_reports, "free_memory", lambda: 64 * GIB)
    assert not [line for line in pytest_reports.pytest_report_header() if "memory" in line]
