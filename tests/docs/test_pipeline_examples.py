"""The examples of pipelines: the README's file is run and shows what the README shows."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import devtools  # noqa: F401 - says where the jars are
from headrace.client import connect
from headrace.config import load_config
from headrace.testing.ingest_process import IngestProcess
from tests.docs.running import ROOT

README = (ROOT / "README.md").read_text()
EXAMPLE = ROOT / "examples/headrace.yaml"
ORDERS = [
    {"id": 1, "customer": "ann", "amount": 12.5},
    {"id": 2, "customer": "bob", "amount": 30.0},
    {"id": 3, "customer": "ann", "amount": 7.25},
    {"id": 4, "customer": "bob", "amount": -3.0},
]


def headrace(folder: Path, *arguments: str) -> str:
    answer = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def without_times(text: str) -> list[str]:
    """The words of each line, without when it was and how long it took."""
    instant = r"\d{4}-\d\d-\d\d[T ][\d:.]+(Z|\+00:00)"
    took = r"; [\d,]+ ms \(.*\)|[\d,]+ ms|[\d,]+(?=  committed)"
    timeless = re.sub(f"{instant}|{took}|[┌┬┐└┴┘─│]", "", text)
    return [" ".join(line.split()) for line in timeless.splitlines() if line.strip()]


def shown(command: str) -> list[str]:
    """What the README says that a command prints, from its last `...` on."""
    block = README.partition(f"    $ headrace {command}\n")[2]
    lines = re.split(r"\n(?!    |\n)|\n    \$ ", block)[0]
    return without_times(lines.rpartition("    ...\n")[2])


def test_the_files_of_the_readme_are_the_examples() -> None:
    first, *_, last = blocks_of(README)
    assert first == EXAMPLE.read_text()
    assert first.partition("materializations:")[0] + last == (ROOT / "examples/sinks.yaml").read_text()


@pytest.mark.parametrize("page", ["README.md", "docs/sinks.md"])
def test_the_sinks_of_the_documentation(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SALES_URL", "postgresql://localhost/sales")
    file = tmp_path / "headrace.yaml"
    file.write_text(
        EXAMPLE.read_text().partition("materializations:")[0] + blocks_of((ROOT / page).read_text())[-1]
    )
    (sales,) = load_config(file).pipeline_settings().materializations
    assert [(sink.name, sink.format) for sink in sales.sinks] == [("lake", "iceberg"), ("events", "kafka")]
    assert [target and target.is_view for sink in sales.sinks for target in sink.targets] == [True, False]


def blocks_of(page: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    (tmp_path / "headrace.yaml").write_text(EXAMPLE.read_text())
    with (
        IngestProcess(tmp_path / "data") as server,
        connect(server.url) as client,
        client.writer("orders") as writer,
    ):
        for receipt in [writer.write([order]) for order in ORDERS]:
            receipt.wait("COMMITTED")
    for command in (
        "validate headrace.yaml",
        "run headrace.yaml --once",
        "status headrace.yaml",
        "dead-letter list headrace.yaml",
    ):
        said = without_times(headrace(tmp_path, *command.split()))
        expected = shown(command)
        assert expected
        assert said[-len(expected) :] == expected
    with closing(sqlite3.connect(tmp_path / "sales.db")) as database:
        rows = database.execute("SELECT customer, amount, id FROM sales").fetchall()
    assert ["|".join(map(str, row)) for row in rows] == shown_rows()


def shown_rows() -> list[str]:
    block = README.partition("    $ sqlite3 sales.db 'SELECT customer, amount, id FROM sales'\n")[2]
    return [line.strip() for line in block.partition("\n\n")[0].splitlines()]
