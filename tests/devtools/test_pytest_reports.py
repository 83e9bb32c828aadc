"""Failures show their context, and a run reports where its time went."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FAILING = """
import subprocess, sys
from devtools.server import starts

def test_fails(tmp_path):
    starts.append(("Some server", 1.5))
    with (tmp_path / "output").open("wb") as output:
        subprocess.run([sys.executable, "-c", "print('the last words'); exit(3)"], stdout=output)
    assert False
"""


@pytest.mark.processes
@pytest.mark.parametrize("parallel", [[], ["--numprocesses", "2", "--dist", "loadfile"]], ids=["one", "two"])
def test_a_failure_explains_itself(tmp_path: Path, parallel: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(FAILING)
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {REPOSITORY}\n")
    (tmp_path / "conftest.py").write_text(
        "from devtools import pytest_reports\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(pytest_reports)\n"
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *parallel],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": "", "HEADRACE_TEST_ORDER": "7", "PYTHONPATH": str(REPOSITORY)},
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "ended with 3; its last lines:)\nthe last words" in ran.stdout
    assert "HEADRACE_TEST_ORDER=7" in ran.stdout
    assert "-m pytest test_it.py::test_fails\n" in ran.stdout
    assert "1.5 s  Some server" in ran.stdout
