"""`headrace demo`, which anybody's first look is."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from rich.console import Console

from headrace.cli.demo.ingest import made_up_orders as orders_to_ingest
from headrace.cli.demo.ingest import report as report_ingested
from headrace.cli.demo.materialize import made_up_orders, report, run


def test_the_totals_are_exact_and_nothing_is_left_behind(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "materialize"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("killed with kill -9") == 2
    assert "Every customer's row is exact" in answer.stdout
    assert list(tmp_path.iterdir()) == []


def test_every_order_is_in_the_iceberg_table_once_and_nothing_is_left_behind(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "ingest"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("killed with kill -9") == 2
    assert "Every order is there once" in answer.stdout
    assert "WARNING" not in answer.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_order_that_is_missing_or_twice_is_noticed() -> None:
    sent = orders_to_ingest()
    console = Console(quiet=True)
    assert report_ingested(console, sent, pa.Table.from_batches(sent))
    assert not report_ingested(console, sent, pa.Table.from_batches(sent[1:]))
    assert not report_ingested(console, sent, pa.Table.from_batches([*sent, sent[0]]))


def test_a_wrong_view_is_noticed(tmp_path: Path) -> None:
    orders = made_up_orders()
    console = Console(quiet=True)
    run(console, tmp_path, orders)
    assert report(console, tmp_path / "sales.db", orders)
    with closing(sqlite3.connect(tmp_path / "sales.db", isolation_level=None)) as connection:
        connection.execute("UPDATE sales SET orders = orders + 1 WHERE customer = 'customer 007'")
    assert not report(console, tmp_path / "sales.db", orders)


def test_keep_says_where_the_database_is(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "headrace", "demo", "materialize", "--keep"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
    )
    assert "sales.db" in answer.stdout
    (folder,) = tmp_path.iterdir()
    assert (folder / "sales.db").exists()
