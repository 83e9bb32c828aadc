"""Tables that were there before us."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.connectors.postgres.database import PostgresDatabase
from headrace.errors import ConfigError, EndpointError
from headrace.model.collections import Collection
from headrace.protocol.messages import Apply
from tests.connectors.postgres.driving import CLIENT, apply, ask, planned, run, things, write

NOTES = things(note={"type": "string"})
BY_NAME = Collection(
    "things",
    ("/name",),
    {
        "type": "object",
        "required": ["name"],
        "reduce": {"strategy": "merge"},
        "properties": {"name": {"type": "string"}},
    },
)


def test_columns_of_related_types_are_taken(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE things (id BIGINT PRIMARY KEY, note VARCHAR, _document JSONB NOT NULL)")
    assert "things" not in apply(postgres_url, NOTES)
    write(postgres_url, NOTES, {"id": 1, "note": "first"})
    assert write(postgres_url, NOTES, {"id": 1, "note": "second"}, n=2) == 1
    rows = ask(postgres_url, "SELECT note, _document->>'note' FROM things")
    assert rows == [("second", "second")]


def test_what_jsonb_does_not_take_is_refused(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE things (id BIGINT PRIMARY KEY, _document JSONB NOT NULL)")
    apply(postgres_url, things())
    with pytest.raises(EndpointError, match=r"unsupported Unicode escape sequence: .*u0000 .*SQLSTATE 22P05"):
        write(postgres_url, things(), {"id": 1, "note": "\0"})


@pytest.mark.parametrize(
    "declared", ["VARCHAR(10)", "CHAR(10)", "CITEXT_LIKE", "TIMESTAMP", "NUMERIC", "BYTEA"]
)
def test_columns_of_other_types_are_not(postgres_url: str, declared: str) -> None:
    run(
        postgres_url,
        "CREATE DOMAIN citext_like AS TEXT",
        f"CREATE TABLE things (id BIGINT PRIMARY KEY, note {declared}, _document JSON NOT NULL)",
    )
    with pytest.raises(
        ConfigError, match=r"'note' .* in the table and the field is string, which needs TEXT"
    ):
        apply(postgres_url, NOTES)


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE VIEW things AS SELECT 1 AS id", "a view"),
        ("CREATE MATERIALIZED VIEW things AS SELECT 1 AS id", "a materialized view"),
        ("CREATE SEQUENCE things", "something else"),
    ],
)
def test_only_a_table_will_do(postgres_url: str, statement: str, what: str) -> None:
    run(postgres_url, statement)
    with pytest.raises(EndpointError, match=f"^public.things is {what}, and only a table can be"):
        apply(postgres_url, NOTES)


def test_a_partitioned_table(postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE TABLE things (id BIGINT PRIMARY KEY, note TEXT, _document JSON NOT NULL)"
        " PARTITION BY RANGE (id)",
        "CREATE TABLE things_low PARTITION OF things FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE things_high PARTITION OF things FOR VALUES FROM (10) TO (20)",
    )
    assert "things" not in apply(postgres_url, NOTES)
    documents: list[dict[str, Any]] = [{"id": number, "note": "x"} for number in (1, 11)]
    write(postgres_url, NOTES, *documents)
    assert write(postgres_url, NOTES, *documents, n=2) == 2
    assert ask(postgres_url, "SELECT id FROM things_high") == [(11,)]
    with pytest.raises(EndpointError, match=r"no partition of relation .*\(SQLSTATE 23514\)"):
        write(postgres_url, NOTES, {"id": 21}, n=3)


def test_a_key_with_a_collation_of_its_own(postgres_url: str) -> None:
    run(postgres_url, 'CREATE TABLE things (name TEXT COLLATE "C" PRIMARY KEY, _document JSON NOT NULL)')
    apply(postgres_url, BY_NAME)
    documents: list[dict[str, Any]] = [{"name": name} for name in ("a", "A", "\u00e4", "")]
    write(postgres_url, BY_NAME, *documents)
    assert write(postgres_url, BY_NAME, *documents, n=2) == 4


def test_a_primary_key_is_told_from_what_its_index_includes(database: PostgresDatabase) -> None:
    database.execute(
        "CREATE TABLE t (a BIGINT, b BIGINT, c BIGINT, gone BIGINT, PRIMARY KEY (b, a) INCLUDE (c))"
    )
    database.execute("ALTER TABLE t DROP COLUMN gone")
    database.execute("CREATE UNIQUE INDEX ON t (c)")
    table = database.table(("public", "t"))
    assert table is not None
    assert table.primary_key == ("b", "a")
    assert list(table.columns) == ["a", "b", "c"]
    assert {name for name, column in table.columns.items() if column.nullable} == {"c"}


def test_a_table_without_columns_or_schema(database: PostgresDatabase) -> None:
    database.execute("CREATE TABLE empty ()")
    table = database.table(("public", "empty"))
    assert table is not None
    assert table.columns == {}
    assert database.table(("public", "Empty")) is None
    assert database.table(("nowhere", "empty")) is None


def test_a_table_of_another_schema(postgres_url: str) -> None:
    with pytest.raises(EndpointError, match='schema "other" does not exist'):
        apply(postgres_url, NOTES, schema="other")
    run(postgres_url, "CREATE SCHEMA other", "CREATE TABLE things (unrelated TEXT)")
    apply(postgres_url, NOTES, schema="other")
    write(postgres_url, NOTES, {"id": 1}, schema="other")
    assert ask(postgres_url, "SELECT id FROM other.things") == [(1,)]
    assert ask(postgres_url, "SELECT * FROM public.things") == []
    assert ask(postgres_url, "SELECT count(*) FROM public.headrace_checkpoints") == [(1,)]


def test_a_role_that_only_writes(postgres_url: str) -> None:
    apply(postgres_url, NOTES)
    run(
        postgres_url,
        "CREATE ROLE writer LOGIN PASSWORD 'p'",
        "GRANT USAGE ON SCHEMA public TO writer",
        "GRANT SELECT, INSERT, UPDATE ON things, headrace_checkpoints TO writer",
    )
    url = f"postgresql://writer:p@{postgres_url.partition('@')[2]}"
    try:
        assert apply(url, NOTES) == ""
        write(url, NOTES, {"id": 1})
        assert write(url, NOTES, {"id": 1}, n=2) == 1
        with pytest.raises(EndpointError, match="its owner has to let it: COMMENT ON TABLE") as caught:
            CLIENT.apply(Apply(planned(url, NOTES), "1", lineage="first"))
        run(postgres_url, caught.value.message.partition("let it: ")[2])
        assert CLIENT.apply(Apply(planned(url, NOTES), "1", lineage="first")).action_description == ""
        with pytest.raises(EndpointError, match=r"must be owner of table things \(SQLSTATE 42501\)"):
            apply(url, things(note={"type": "string"}, more={"type": "string"}))
    finally:
        run(postgres_url, "DROP OWNED BY writer", "DROP ROLE writer")


def test_a_role_that_lacks_rights(postgres_url: str) -> None:
    run(postgres_url, "CREATE ROLE reader LOGIN PASSWORD 'p'")
    url = f"postgresql://reader:p@{postgres_url.partition('@')[2]}"
    told = "role 'reader' lacks {0} on {1}: GRANT {0} ON {2} TO \"reader\""
    try:
        with pytest.raises(EndpointError) as caught:
            planned(url, NOTES)
        assert caught.value.message == told.format("CREATE", 'schema "public"', 'SCHEMA "public"')
        apply(postgres_url, NOTES)
        run(postgres_url, "GRANT SELECT ON things, headrace_checkpoints TO reader")
        with pytest.raises(EndpointError) as caught:
            planned(url, NOTES)
        table = '"public"."things"'
        assert caught.value.message == told.format("INSERT, UPDATE", f"table {table}", f"TABLE {table}")
    finally:
        run(postgres_url, "DROP OWNED BY reader", "DROP ROLE reader")


def test_a_table_that_a_crash_empties(postgres_url: str) -> None:
    run(postgres_url, "CREATE UNLOGGED TABLE things (id BIGINT PRIMARY KEY, _document JSON NOT NULL)")
    with pytest.raises(EndpointError, match=r'UNLOGGED, .*: ALTER TABLE "public"."things" SET LOGGED$'):
        planned(postgres_url, things())
    run(postgres_url, 'ALTER TABLE "public"."things" SET LOGGED')
    planned(postgres_url, things())


def test_a_key_that_folds_case(postgres_url: str) -> None:
    """This PostgreSQL has no ICU, and so no such collation: the catalog is made to say that it has."""
    run(
        postgres_url,
        'CREATE COLLATION folded FROM "C"',
        "CREATE TABLE things (name TEXT COLLATE folded PRIMARY KEY, _document JSON NOT NULL)",
        "UPDATE pg_collation SET collisdeterministic = false WHERE collname = 'folded'",
    )
    with pytest.raises(ConfigError, match="the collation of name takes different keys for one"):
        planned(postgres_url, BY_NAME)


def test_whose_a_table_is_stands_below_what_people_wrote(postgres_url: str) -> None:
    run(
        postgres_url,
        "CREATE TABLE things (id BIGINT PRIMARY KEY, note TEXT, _document JSON NOT NULL)",
        "COMMENT ON TABLE things IS 'O''Brien''s table\nsince 2019'",
    )
    for lineage in ("first", "second"):
        CLIENT.apply(Apply(planned(postgres_url, NOTES), "1", lineage=lineage))
        ((comment,),) = ask(postgres_url, "SELECT obj_description('things'::regclass)")
        said = f'{{"materialization":"view","lineage":"{lineage}","key":["id"],"mode":"view"}}'
        assert comment == f"O'Brien's table\nsince 2019\nwritten by headrace: {said}"
