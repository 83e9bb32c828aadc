"""`headrace apply`, as a person would call it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from headrace.cli.apply import Action, actions_of
from tests.cli.pipeline_files import changed, run, sentence_of, written
from tests.connectors.postgres.driving import ask
from tests.waiting import DEADLINE_SECONDS


def columns_of(database: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(database)) as connection:
        return [row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]


@pytest.mark.processes
def test_help_has_examples_in_a_process_of_its_own() -> None:
    command = [sys.executable, "-m", "headrace", "apply", "--help"]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=DEADLINE_SECONDS
    ).stdout
    assert "headrace apply headrace.yaml --dry-run" in shown


def test_it_is_shown_then_done_then_nothing(tmp_path: Path) -> None:
    path = written(tmp_path)
    shown = run("apply", path, "--dry-run")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "sales: would be done" in shown.stdout
    assert 'CREATE TABLE "main"."[bold]orders"' in shown.stdout
    assert not list(tmp_path.glob("*.db*"))
    done = run("apply", path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "archive: done" in done.stdout
    assert columns_of(tmp_path / "sales.db", "orders") == ["id", "customer", "lines", "_document"]
    assert columns_of(tmp_path / "archive.db", "[bold]orders") == ["id", "customer", "day", "_document"]
    again = run("apply", path)
    assert again.stdout == "sales: nothing to do\narchive: nothing to do\n"


def test_one_by_name_for_a_program(tmp_path: Path) -> None:
    path = written(tmp_path)
    shown = json.loads(run("apply", path, "sales", "--dry-run", "--json").stdout)
    assert shown["dry_run"] is True
    (sales,) = shown["materializations"]
    assert sales["name"] == "sales"
    checkpoints, table = sales["actions"]
    assert checkpoints["action"] == "create the table of checkpoints and fences"
    assert table["action"] == 'create table "main"."orders"'
    assert table["statement"].startswith('CREATE TABLE "main"."orders" (')
    assert table["statement"].endswith(");")
    assert not list(tmp_path.glob("*.db*"))
    done = json.loads(run("apply", path, "sales", "--json").stdout)
    assert done == {**shown, "dry_run": False}
    assert [found.name for found in tmp_path.glob("*.db")] == ["sales.db"]
    assert json.loads(run("apply", path, "sales", "--json").stdout)["materializations"][0]["actions"] == []


def test_postgres(tmp_path: Path, postgres_url: str) -> None:
    path = written(tmp_path, "postgres", f"{{url: '{postgres_url}'}}")

    def columns() -> list[str]:
        question = (
            "SELECT column_name::text FROM information_schema.columns WHERE table_name = 'orders' "
            "ORDER BY ordinal_position"
        )
        return [name for (name,) in ask(postgres_url, question)]

    assert run("apply", path, "sales", "--dry-run").returncode == 0
    assert columns() == []
    assert run("apply", path, "sales").returncode == 0
    assert columns() == ["id", "customer", "lines", "_document"]
    changed(path, ", exclude: [day]", "")
    (sales,) = json.loads(run("apply", path, "sales", "--json").stdout)["materializations"]
    assert len(sales["actions"]) == 1
    assert columns() == ["id", "customer", "lines", "_document", "day"]


def test_nothing_is_applied_if_one_of_them_is_wrong(tmp_path: Path) -> None:
    path = changed(written(tmp_path), "archive.db", "none/archive.db")
    answer = run("apply", path)
    assert "line 20: materializations.archive: " in sentence_of(answer)
    assert answer.stdout == ""
    assert not list(tmp_path.glob("*.db*"))


@pytest.mark.parametrize(
    ("description", "actions"),
    [
        ("", []),
        ("create prefix a\ncreate prefix b", [Action("create prefix a"), Action("create prefix b")]),
        ("-- one\nA (\n  b\n);\n-- two\nC;", [Action("one", "A (\n  b\n);"), Action("two", "C;")]),
        ("before\n-- one\nA;", [Action("before"), Action("one", "A;")]),
    ],
)
def test_what_connectors_say_is_taken_apart(description: str, actions: list[Action]) -> None:
    assert actions_of(description) == actions
