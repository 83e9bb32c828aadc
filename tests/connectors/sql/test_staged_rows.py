"""Which statements a transaction takes: staging tables cost something only where they are used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from headrace.connectors.postgres.database import PostgresDatabase
from headrace.testing import Runtime
from tests.connectors.postgres.driving import CLIENT, apply, ask, planned, things

NOTES = things(note={"type": "string"})


@pytest.fixture
def statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The first words of what changes something."""
    found: list[str] = []
    execute = PostgresDatabase.execute

    def noting(database: PostgresDatabase, statement: str, *parameters: Any) -> int:
        found.append(" ".join(statement.split()[:4]))
        return execute(database, statement, *parameters)

    monkeypatch.setattr(PostgresDatabase, "execute", noting)
    return found


def of_staging(statements: Sequence[str]) -> list[str]:
    return [
        one for one in statements if one.startswith(("CREATE TEMPORARY", "ANALYZE", "TRUNCATE", "DELETE"))
    ]


def documents(begin: int, end: int, note: str = "x" * 200) -> list[dict[str, Any]]:
    return [{"id": number, "note": note} for number in range(begin, end)]


def test_a_table_is_made_when_it_is_needed(postgres_url: str, statements: list[str]) -> None:
    apply(postgres_url, NOTES)
    with Runtime(CLIENT, planned(postgres_url, NOTES)) as runtime:
        runtime.transact([[]], {"n": 1})
        assert of_staging(statements) == []
        runtime.transact([documents(0, 5)], {"n": 2})
        assert "CREATE TEMPORARY TABLE headrace_update_0" not in statements
        runtime.transact([documents(0, 5, "y")], {"n": 3})
        assert "CREATE TEMPORARY TABLE headrace_update_0" in statements
        assert len(of_staging(statements)) == 4, "three are made, and the keys of before are removed"
    assert ask(postgres_url, "SELECT count(*), min(note) FROM things") == [(5, "y")]


def test_what_is_staged_is_forgotten_before_the_next(postgres_url: str, statements: list[str]) -> None:
    apply(postgres_url, NOTES)
    with Runtime(CLIENT, planned(postgres_url, NOTES)) as runtime:
        for turn in range(4):
            runtime.transact([[*documents(0, 300, str(turn)), *documents(300, 1000)]], {"n": turn})
            runtime.transact([documents(1000 * turn + 1000, 1000 * turn + 2000)], {"m": turn})
    assert ask(postgres_url, "SELECT count(*), min(note) FROM things") == [(5000, "3")]


def test_only_what_is_joined_is_analyzed(postgres_url: str, statements: list[str]) -> None:
    apply(postgres_url, NOTES)
    with Runtime(CLIENT, planned(postgres_url, NOTES)) as runtime:
        runtime.transact([documents(0, 10_000)], {"n": 1})
        assert "ANALYZE headrace_insert_0 (c0)" not in statements
        runtime.transact([documents(0, 10_000, "y" * 200)], {"n": 2})
        assert "ANALYZE headrace_update_0 (c0)" in statements
