"""Rows whose keys look new are copied straight into the table, and nothing but speed comes of it."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.postgres.database import PostgresDatabase
from headrace.connectors.sql import new_rows
from headrace.connectors.sql.database import Database
from headrace.errors import EndpointError, EndpointUnavailable, Fenced
from headrace.model.collections import Collection
from headrace.protocol.messages import Apply
from headrace.testing import Runtime
from tests.connectors.postgres.driving import CLIENT, ask, planned, run, terminate
from tests.connectors.postgres.driving import apply as apply_view
from tests.waiting import DEADLINE_SECONDS, wait_until

NOTES = Collection(
    "things",
    ("/id",),
    {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "note": {"type": "string"}},
    },
)
"""The last write wins, so that nothing is loaded and every row is said to be new."""
LOOKED_UP = 10


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_rows, "LOOKED_UP", LOOKED_UP)
    monkeypatch.setattr(new_rows, "_pauses", {})


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, bool]]:
    """How many rows were to be copied, and whether they were."""
    found: list[tuple[int, bool]] = []
    really = PostgresDatabase.copy

    def copy(
        database: PostgresDatabase, path: Sequence[str], names: Sequence[str], rows: list[pa.RecordBatch]
    ) -> bool:
        done = really(database, path, names, rows)
        found.append((sum(batch.num_rows for batch in rows), done))
        return done

    monkeypatch.setattr(PostgresDatabase, "copy", copy)
    return found


def documents(begin: int, end: int, note: str = "a") -> list[dict[str, Any]]:
    return [{"id": number, "note": note} for number in range(begin, end)]


def notes(url: str) -> list[tuple[Any, ...]]:
    return ask(url, "SELECT note, count(*), min(id), max(id) FROM things GROUP BY note ORDER BY note")


def transact(url: str, *transactions: list[dict[str, Any]], collection: Collection = NOTES) -> None:
    with Runtime(CLIENT, planned(url, collection)) as runtime:
        for number, written in enumerate(transactions):
            runtime.transact([written], {"n": number})


def test_new_rows_are_copied(postgres_url: str, copies: list[tuple[int, bool]]) -> None:
    apply_view(postgres_url, NOTES)
    transact(postgres_url, documents(0, 100), documents(100, 105), documents(105, 200))
    assert copies == [(90, True), (85, True)]
    assert notes(postgres_url) == [("a", 200, 0, 199)]
    assert ask(postgres_url, "SELECT count(DISTINCT _document->>'id') FROM things") == [(200,)]


def test_rows_whose_keys_are_there_are_not(postgres_url: str, copies: list[tuple[int, bool]]) -> None:
    apply_view(postgres_url, NOTES)
    transact(postgres_url, documents(0, 5), documents(0, 100, "b"))
    assert copies == []
    assert notes(postgres_url) == [("b", 100, 0, 99)]


def test_a_key_that_is_there_after_all_is_updated(postgres_url: str, copies: list[tuple[int, bool]]) -> None:
    apply_view(postgres_url, NOTES)
    transact(postgres_url, documents(99, 101), documents(0, 100, "b"), documents(200, 300, "c"))
    assert copies == [(90, False)], "and then it is not tried for a while"
    assert notes(postgres_url) == [("a", 1, 100, 100), ("b", 100, 0, 99), ("c", 100, 200, 299)]


def test_it_is_tried_again_later(
    postgres_url: str, copies: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_rows, "_PAUSE", 2)
    apply_view(postgres_url, NOTES)
    many = [documents(100 * number, 100 * number + 100) for number in range(1, 5)]
    transact(postgres_url, documents(99, 101), documents(0, 100, "b"), *many)
    assert [done for _, done in copies] == [False, True, True]


def test_nothing_of_a_commit_that_is_fenced_off_is_there(
    postgres_url: str, copies: list[tuple[int, bool]]
) -> None:
    apply_view(postgres_url, NOTES)
    view = planned(postgres_url, NOTES)

    def replaced() -> None:
        with Runtime(CLIENT, view) as zombie:
            with Runtime(CLIENT, view):
                pass
            zombie.transact([documents(0, 100)], {"n": 1})

    with pytest.raises(Fenced):
        replaced()
    assert copies == [(90, True)]
    assert notes(postgres_url) == []


def test_nothing_is_there_of_a_copy_whose_connection_was_lost(
    postgres_url: str, copies: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_view(postgres_url, NOTES)
    copy = PostgresDatabase.copy

    def copy_and_lose(database: PostgresDatabase, *arguments: Any) -> bool:
        done = copy(database, *arguments)
        ((pid,),) = database.query("SELECT pg_backend_pid()")
        terminate(postgres_url, pid)
        return done

    with monkeypatch.context() as patched:
        patched.setattr(PostgresDatabase, "copy", copy_and_lose)
        with pytest.raises(EndpointUnavailable):
            transact(postgres_url, documents(0, 100))
    assert notes(postgres_url) == []
    transact(postgres_url, documents(0, 100))
    assert copies == [(90, True), (90, True)]
    assert notes(postgres_url) == [("a", 100, 0, 99)]


def test_of_two_copies_of_the_same_rows_the_second_waits_and_is_undone(postgres_url: str) -> None:
    """As of two attempts at one task: the fence then decides, as it does between any two."""
    run(postgres_url, "CREATE TABLE t (n BIGINT PRIMARY KEY)")
    rows = [pa.RecordBatch.from_arrays([pa.array(range(1000))], ["n"])]

    def copy(database: Database) -> bool:
        with database.transaction():
            done = database.copy(["public", "t"], ["n"], rows)
            database.execute("INSERT INTO t VALUES (5000) ON CONFLICT DO NOTHING")  # it can go on
            return done

    with (
        PostgresDatabase(postgres_url) as first,
        PostgresDatabase(postgres_url) as second,
        ThreadPoolExecutor(1) as threads,
    ):
        with first.transaction():
            assert first.copy(["public", "t"], ["n"], rows)
            waiting = threads.submit(copy, second)
            here = "datname = current_database() AND wait_event_type = 'Lock'"
            blocked = f"SELECT 1 FROM pg_stat_activity WHERE {here}"
            wait_until(lambda: waiting.done() or ask(postgres_url, blocked), "a copy that waits")
            assert not waiting.done()
        assert waiting.result(DEADLINE_SECONDS) is False
    assert ask(postgres_url, "SELECT count(*), max(n) FROM t") == [(1001, 5000)]


def test_more_than_fits_is_staged(
    postgres_url: str, copies: list[tuple[int, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(new_rows, "MOST_BYTES", 1000)
    apply_view(postgres_url, NOTES)
    transact(postgres_url, documents(0, 1000))
    assert copies == []
    assert notes(postgres_url) == [("a", 1000, 0, 999)]


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE RULE nothing AS ON INSERT TO things WHERE NEW.id < 0 DO INSTEAD NOTHING"],
        ["ALTER TABLE things ENABLE ROW LEVEL SECURITY"],
        [
            "CREATE FUNCTION same() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'",
            "CREATE TRIGGER same AFTER INSERT ON things EXECUTE FUNCTION same()",
        ],
        ["ALTER TABLE things ALTER COLUMN _document TYPE JSONB"],
        [
            "DROP TABLE things",
            "CREATE TABLE things (id BIGINT PRIMARY KEY, note TEXT, _document JSON NOT NULL)"
            " PARTITION BY HASH (id)",
            "CREATE TABLE things_0 PARTITION OF things FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
        ],
    ],
    ids=["rule", "row security", "trigger", "jsonb", "partitions"],
)
def test_a_table_that_copies_would_treat_otherwise(
    postgres_url: str, copies: list[tuple[int, bool]], statements: list[str]
) -> None:
    apply_view(postgres_url, NOTES)
    view = planned(postgres_url, NOTES)
    if statements[0].startswith("CREATE"):
        with Runtime(CLIENT, view) as runtime:
            run(postgres_url, *statements)  # while the stream is open
            runtime.transact([documents(0, 100)], {"n": 1})
    else:
        run(postgres_url, *statements)
        transact(postgres_url, documents(0, 100))
    assert copies == []
    assert notes(postgres_url) == [("a", 100, 0, 99)]


EVERY_TYPE = Collection(
    "things",
    ("/id", "/day"),
    {
        "type": "object",
        "required": ["id", "day"],
        "properties": {
            "id": {"type": "integer"},
            "day": {"type": "string", "format": "date"},
            "note": {"type": "string"},
            "price": {"type": "string", "format": "decimal(12,3)"},
            "share": {"type": "number"},
            "at": {"type": "string", "format": "date-time"},
            "is_paid": {"type": "boolean"},
            "tags": {"type": "array"},
        },
    },
)


def test_the_same_is_stored_of_every_type(postgres_url: str, copies: list[tuple[int, bool]]) -> None:
    whole = {
        "note": "caf\u00e9 \\N \t\n",
        "price": "123456789.012",
        "share": -0.1,
        "at": "2026-02-03T04:05:06.789012Z",
        "is_paid": True,
        "tags": ["x", {"y": None}],
    }
    day = "2026-11-{:02}"
    written = [
        {"id": number, "day": day.format(1 + number % 28), **(whole if number % 2 else {})}
        for number in range(2 * LOOKED_UP)
    ]
    view = planned(postgres_url, EVERY_TYPE, include=["tags"])
    CLIENT.apply(Apply(view, "1"))
    with Runtime(CLIENT, view) as runtime:
        runtime.transact([written], {"n": 1})
    assert copies == [(LOOKED_UP, True)]
    # One half was staged and the other copied, and they have the same values in turn.
    shown = "note, price::text, share, at::text, is_paid, tags::text"
    for parity in (0, 1):
        rows = ask(postgres_url, f"SELECT DISTINCT {shown} FROM things WHERE id % 2 = {parity}")
        assert len(rows) == 1
    assert ask(postgres_url, "SELECT count(*), count(note), count(tags) FROM things") == [(20, 10, 10)]


def test_a_value_that_does_not_fit_is_refused_as_ever(
    postgres_url: str, copies: list[tuple[int, bool]]
) -> None:
    apply_view(postgres_url, NOTES)
    with pytest.raises(EndpointError, match=r"^a text value holds the character U\+0000"):
        transact(postgres_url, [*documents(0, 50), {"id": 50, "note": "a\0b"}])
    run(postgres_url, "CREATE UNIQUE INDEX ON things (note) WHERE id > 40")
    with pytest.raises(EndpointError, match="SQLSTATE 23505"):
        transact(postgres_url, documents(0, 50))
    assert copies == [(40, False)]
    assert notes(postgres_url) == []
