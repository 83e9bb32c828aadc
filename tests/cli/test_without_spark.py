"""The commands on a machine without PySpark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.pipeline_files import written

# In a process of its own, since this one may have imported it; and all in one, since that takes seconds.
PROGRAM = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch
sys.modules["pyspark"] = None
from headrace.cli import main
answers = {}
for name in sys.argv[2:]:
    out, err, code = io.StringIO(), io.StringIO(), 0
    arguments = patch.object(sys, "argv", ["headrace", name, sys.argv[1]])
    with arguments, redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
    answers[name] = [code, out.getvalue() + err.getvalue()]
print(json.dumps(answers))
"""
WITHOUT = ["validate", "apply", "status", "verify"]


@pytest.mark.processes
def test_what_needs_no_spark_runs_and_the_rest_says_what_to_install(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(written(tmp_path)), *WITHOUT, "run"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout)
    assert {name: answers[name][0] for name in WITHOUT} == dict.fromkeys(WITHOUT, 0), answers
    assert answers["run"] == [1, "headrace: this needs Spark: pip install 'headrace[spark]'\n"]
