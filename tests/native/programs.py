"""The programs in Rust that tests talk to: examples of the crates."""

from __future__ import annotations

import os
import subprocess
from functools import cache
from pathlib import Path

NATIVE = Path(__file__).parents[2] / "native"


@cache
def program(name: str) -> Path:
    """Builds all programs, as `cargo test` does, so that after it nothing is compiled again; returns one."""
    command = "cargo build --release --locked --offline --quiet --workspace --examples"
    subprocess.run(command.split(), cwd=NATIVE, check=True)
    target = Path(os.environ.get("CARGO_TARGET_DIR", NATIVE / "target"))
    return target / "release" / "examples" / name
