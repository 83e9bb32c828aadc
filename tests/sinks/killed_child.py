"""Runs a child of a sink's tests until it has reached the step that it was told, and kills it there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from headrace.model.checkpoints import JsonObject
from tests.waiting import wait_until

ROOT = Path(__file__).parents[2]


def kill_child(module: str, told: dict[str, Any], folder: Path) -> JsonObject | None:
    """What it had prepared, if it came so far."""
    log = folder / "log"
    with log.open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", module, json.dumps({**told, "folder": str(folder)})],
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def has_reached() -> bool:
        assert child.poll() is None, log.read_text()
        return (folder / "reached").exists()

    try:
        wait_until(has_reached, f"step {told['step']} of {module}")
    finally:
        os.killpg(child.pid, signal.SIGKILL)  # with the JVM
        child.wait()
    handle = folder / "handle.json"
    return json.loads(handle.read_text()) if handle.exists() else None
