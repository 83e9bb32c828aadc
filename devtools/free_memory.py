"""How much memory this process may still use: what the machine has, within the limit of its cgroup."""

from __future__ import annotations

import sys
from pathlib import Path


def free_memory(root: Path = Path("/")) -> int:
    """Returns the bytes that are available. `root` is where /proc and /sys are."""
    return min(_of_machine(root), _of_cgroup(root))


def _of_machine(root: Path) -> int:
    for line in (root / "proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return sys.maxsize


def _of_cgroup(root: Path) -> int:
    """Reads cgroup version 2, which containers have. Page cache that can be dropped counts as free."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            own = root / "sys/fs/cgroup" / line.removeprefix("0::/")
            return min(map(_within, [own, *own.parents]))
    return sys.maxsize


def _within(group: Path) -> int:
    try:
        most = (group / "memory.max").read_text().strip()
        if most == "max":
            return sys.maxsize
        used = int((group / "memory.current").read_text())
        droppable = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(most) - used + int(droppable["inactive_file"])
    except FileNotFoundError:  # the root has no limit, nor has a group without the memory controller
        return sys.maxsize
