"""The Python examples of the README are run."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.testing.ingest_process import IngestProcess
from tests.docs.running import run_examples


def test_readme(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    monkeypatch.chdir(tmp_path)
    with IngestProcess(tmp_path / "data") as server:
        # Spark's workers were started in another folder.
        here = {"grpc://127.0.0.1:8815": server.url, '{"path": "': f'{{"path": "{tmp_path}/'}
        run_examples("README.md", here, spark=spark)
    said = capsys.readouterr().out
    assert re.search(r"\[\{'id': 1, 'customer': 'ann', 'amount': 12.5, '_lsn': 1, '_row': 0\}\]", said)
    assert "1 survives the machine" in said
    assert 'CREATE TABLE "main"."sales"' in said
    with contextlib.closing(sqlite3.connect("sales.db")) as database:
        rows = database.execute("SELECT customer, orders FROM sales ORDER BY customer").fetchall()
        assert rows == [("ann", 2), ("bob", 1)]
        ((checkpoint,),) = database.execute("SELECT checkpoint FROM headrace_checkpoints").fetchall()
        assert checkpoint == '{"offset":3}'
    with contextlib.closing(sqlite3.connect("payments.db")) as database:
        rows = database.execute("SELECT customer, amount FROM payments ORDER BY customer").fetchall()
        assert rows == [("ann", 7.5), ("bob", 1.0)]
