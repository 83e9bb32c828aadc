"""The generated code is that of the proto file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GENERATED = ROOT / "src/headrace/protocol/grpc/gen"


@pytest.mark.processes
def test_the_generated_code_is_current(tmp_path: Path) -> None:
    generate = [sys.executable, str(ROOT / "tools/generate_proto.py"), str(tmp_path)]
    subprocess.run(generate, check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made
    kept = {path.name: path.read_text() for path in GENERATED.glob("*_pb2*")}
    assert kept == made, "run: make proto"
