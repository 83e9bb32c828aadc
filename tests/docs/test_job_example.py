"""The example of a Spark job that materializes a DataFrame of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.docs.running import run_examples


def test_a_job_of_ones_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    spark: SparkSession,
) -> None:
    monkeypatch.chdir(tmp_path)
    # Spark's workers were started in another folder.
    here = {'{"path": "': f'{{"path": "{tmp_path}/'}
    run_examples("docs/pipeline.md", here, spark=spark)
    assert "epoch 0; 3 read; 2 keys, 0 loaded, 2 stored" in capsys.readouterr().out
    with closing(sqlite3.connect(tmp_path / "sales.db")) as database:
        rows = database.execute("SELECT customer, amount, id FROM sales ORDER BY customer").fetchall()
    assert rows == [("ann", 19.75, 3), ("bob", 30.0, 2)]
