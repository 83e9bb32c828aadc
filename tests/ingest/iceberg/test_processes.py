"""What the processes of the committer and the scanner import."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.processes
@pytest.mark.parametrize("module", ["committer_process", "scan_process"])
def test_pandas_is_not_imported(module: str) -> None:
    program = f"""
import sys
import headrace.ingest.iceberg.{module}
import pyarrow as pa
assert pa.array([1, None]).sum().as_py() == 1
print("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
