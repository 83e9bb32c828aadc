"""`headrace demo`, which anybody's first look is."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import devtools  # noqa: F401 - says where the jars are
from headrace.cli.demo import comparison, needed, sales
from headrace.cli.demo.ingest import made_up_orders as orders_to_ingest
from headrace.cli.demo.ingest import report as report_ingested
from headrace.cli.demo.materialize import made_up_orders, report, run
from headrace.cli.demo.sales import Places
from tests.cli import pipeline_files
from tests.waiting import wait_until

DEMO = [sys.executable, "-m", "headrace", "demo"]


def assert_nothing_is_left(folder: Path) -> None:
    """Waits, because a process that ends when another has ended may take a moment."""
    wait_until(lambda: not running_in(folder), "the end of all processes")
    assert list(folder.iterdir()) == []


def running_in(folder: Path) -> list[str]:
    """Finds the processes that have the folder on their command line or in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            command = process.cmdline()
            said = [*command, *process.environ().values()]
        except psutil.Error:
            continue
        if process.pid != os.getpid() and any(str(folder) in text for text in said):
            found.append(" ".join(command))
    return found


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_the_whole_product(tmp_path: Path) -> None:
    answer = subprocess.run(
        DEMO,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "the server is killed with kill -9 after" in answer.stdout
    assert "the pipeline is killed with kill -9 in the middle of epoch" in answer.stdout
    assert answer.stdout.count("the pipeline has started: exactly-once") == 2
    assert answer.stdout.count("(the epoch of the kill, run again)") == 1
    assert "differs" not in answer.stdout
    assert "Every row of the view is exact, and every bad order is in the dead letters once" in answer.stdout
    assert "WARNING" not in answer.stderr
    assert_nothing_is_left(tmp_path)


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(300)
def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"}
    with subprocess.Popen(DEMO, stdout=subprocess.PIPE, env=environment, start_new_session=True) as process:
        assert process.stdout is not None
        while b"the server listens on" not in process.stdout.readline():
            assert process.poll() is None
        demo = psutil.Process(process.pid)
        wait_until(lambda: "java" in [child.name() for child in demo.children(recursive=True)], "Spark")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        process.stdout.read()
    assert process.returncode == 1
    assert_nothing_is_left(tmp_path)


def test_a_wrong_row_of_the_view_is_noticed(tmp_path: Path) -> None:
    orders = sales.made_up_orders()
    places = arrived(tmp_path, orders)
    console = Console(quiet=True)
    assert comparison.report(console, places, orders)
    with closing(sqlite3.connect(places.database, isolation_level=None)) as database:
        database.execute("UPDATE sales SET last_order = last_order - 1 WHERE customer = 'Kofi'")
        assert not comparison.report(console, places, orders)
        database.execute("UPDATE sales SET last_order = last_order + 1 WHERE customer = 'Kofi'")
        assert comparison.report(console, places, orders)
        database.execute("DELETE FROM sales WHERE customer = 'Kofi'")
    assert not comparison.report(console, places, orders)


def test_a_dead_letter_that_is_missing_twice_or_of_another_rule_is_noticed(tmp_path: Path) -> None:
    orders = sales.made_up_orders()
    places = arrived(tmp_path, orders)
    console = Console(quiet=True)
    letters = list(comparison.expected_letters(orders).items())
    good = next(number for number in range(len(orders)) if number not in dict(letters))
    for wrong in (
        [],
        letters[1:],
        [*letters, letters[0]],
        [*letters[1:], (letters[0][0], frozenset({"another"}))],
        [*letters[1:], (good, letters[0][1])],
    ):
        write_letters(places, wrong)
        assert not comparison.report(console, places, orders)
    write_letters(places, letters)
    assert comparison.report(console, places, orders)


def arrived(folder: Path, orders: pa.Table) -> Places:
    """A folder as the demo leaves it if all is well."""
    places = Places(folder)
    rows = comparison.expected_view(orders)
    with closing(sqlite3.connect(places.database)) as database, database:
        database.execute("CREATE TABLE sales (customer, orders, amount, largest, last_order)")
        database.executemany(
            "INSERT INTO sales VALUES (?, ?, ?, ?, ?)",
            [
                (name, row.orders, str(row.amount), str(row.largest), row.last_order)
                for name, row in rows.items()
            ],
        )
    write_letters(places, comparison.expected_letters(orders).items())
    return places


def write_letters(places: Places, letters: Iterable[tuple[int, frozenset[str]]]) -> None:
    rows = [{"rules": sorted(rules), "row": json.dumps({"last_order": number})} for number, rules in letters]
    folder = places.dead_letters / "epoch=00000000000000000000"
    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("rules", pa.list_(pa.string())), ("row", pa.string())])
    pq.write_table(pa.Table.from_pylist(rows, schema), folder / "part.parquet")


def test_the_file_that_the_demo_writes_is_valid(tmp_path: Path) -> None:
    folder = tmp_path / "a 'folder': \"1\""
    folder.mkdir()
    places = Places(folder)
    places.write_file()
    pipeline_files.make_catalog(folder / "data")
    answer = pipeline_files.run("validate", places.file)
    assert answer.returncode == 0, answer.stderr
    assert "guarantee: exactly-once" in answer.stdout


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")
    said = pipeline_files.sentence_of(pipeline_files.run("demo"))
    assert said.startswith("headrace: no Java in JAVA_HOME or on the PATH: install Java 17")
    monkeypatch.setattr(needed, "find_spec", lambda _name: None)
    said = pipeline_files.sentence_of(pipeline_files.run("demo", "pipeline"))
    assert said.endswith("is not installed: pip install 'headrace[demo]'")


@pytest.mark.processes
def test_the_totals_are_exact_and_nothing_is_left_behind(tmp_path: Path) -> None:
    answer = subprocess.run(
        [*DEMO, "materialize"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stdout.count("killed with kill -9") == 2
    assert "Every customer's row is exact" in answer.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
@pytest.mark.full  # tests/crash/ingest kills servers, and the README's test writes to one
def test_every_order_is_in_the_iceberg_table_once_and_nothing_is_left_behind(tmp_path: Path) -> None:
    answer = subprocess.run(
        [*DEMO, "ingest"],
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


@pytest.mark.processes
@pytest.mark.full  # a wrong row is noticed in a test above
def test_a_wrong_view_is_noticed(tmp_path: Path) -> None:
    orders = made_up_orders()
    console = Console(quiet=True)
    run(console, tmp_path, orders)
    assert report(console, tmp_path / "sales.db", orders)
    with closing(sqlite3.connect(tmp_path / "sales.db", isolation_level=None)) as connection:
        connection.execute("UPDATE sales SET orders = orders + 1 WHERE customer = 'customer 007'")
    assert not report(console, tmp_path / "sales.db", orders)


@pytest.mark.processes
@pytest.mark.full  # the demo itself runs in the test above
def test_keep_says_where_the_database_is(tmp_path: Path) -> None:
    answer = subprocess.run(
        [*DEMO, "materialize", "--keep"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "200"},
    )
    assert "sales.db" in answer.stdout
    (folder,) = tmp_path.iterdir()
    assert (folder / "sales.db").exists()
