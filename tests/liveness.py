"""Tells whether a process that is not our child still runs."""

from __future__ import annotations

import psutil


def is_alive(process: psutil.Process) -> bool:
    """A zombie counts as ended: where nobody collects orphans, it stays."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
