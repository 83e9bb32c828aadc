"""What a connection is set to, whatever the server's own settings are."""

from __future__ import annotations

import pyarrow as pa
import pytest

from devtools.postgres_server import PostgresServer
from headrace.connectors.postgres.config import PostgresEndpoint
from headrace.connectors.postgres.connection_url import connection_url
from headrace.connectors.postgres.database import PostgresDatabase
from headrace.errors import EndpointError
from tests.connectors.postgres.driving import apply, ask, run, things, write


def set_defaults(url: str, **settings: str) -> None:
    name = ask(url, "SELECT current_database()::text")[0][0]
    run(url, *(f"ALTER DATABASE {name} SET {setting} = {value}" for setting, value in settings.items()))


def settings_of_a_session(url: str) -> dict[str, str]:
    with PostgresDatabase(connection_url(PostgresEndpoint.model_validate({"url": url}))) as database:
        rows = database.query("SELECT name, setting FROM pg_settings")
    return {row[0]: row[1] for row in rows}


def test_settings(postgres_url: str) -> None:
    run(postgres_url, "CREATE SCHEMA mine")
    set_defaults(postgres_url, search_path="mine, public", timezone="'Asia/Kolkata'", datestyle="'German'")
    settings = settings_of_a_session(postgres_url)
    assert settings["application_name"] == "headrace"
    assert settings["idle_in_transaction_session_timeout"] == "60000"
    assert settings["TimeZone"] == "UTC"
    assert settings["DateStyle"].startswith("ISO")
    assert settings["client_encoding"] == "UTF8"
    assert settings["search_path"] == "mine, public"
    assert settings["lock_timeout"] == "120000"


def test_what_is_set_too_low_is_raised(postgres_url: str) -> None:
    set_defaults(postgres_url, synchronous_commit="off", work_mem="'1MB'")
    settings = settings_of_a_session(postgres_url)
    assert (settings["synchronous_commit"], settings["work_mem"]) == ("on", "65536")
    set_defaults(postgres_url, synchronous_commit="remote_apply", work_mem="'256MB'")
    settings = settings_of_a_session(postgres_url)
    assert (settings["synchronous_commit"], settings["work_mem"]) == ("remote_apply", "262144")


def test_a_database_of_another_encoding(postgres_server: PostgresServer, postgres_url: str) -> None:
    run(postgres_url, "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    url = f"{postgres_url.rpartition('/')[0]}/latin"
    collection = things(note={"type": "string"})
    try:
        apply(url, collection)
        write(url, collection, {"id": 1, "note": "\u00e9"})
        assert write(url, collection, {"id": 1}, n=2) == 1
        assert ask(f"{url}?client_encoding=UTF8", "SELECT note FROM things") == [("\u00e9",)]
        with pytest.raises(EndpointError, match=r"no equivalent in encoding \"LATIN1\" .SQLSTATE 22P05"):
            write(url, collection, {"id": 2, "note": "\u2603"})
    finally:
        postgres_server.drop_database("latin")


def test_a_transaction_writes_where_the_default_is_not_to(postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE t (n BIGINT)")
    with PostgresDatabase(postgres_url) as database:
        database.execute("SET default_transaction_read_only = on")
        with database.transaction():
            assert database.execute("INSERT INTO t VALUES ($1)", 1) == 1
    assert ask(postgres_url, "SELECT n FROM t") == [(1,)]


def test_rows_are_counted(database: PostgresDatabase) -> None:
    database.execute("CREATE TABLE t (n BIGINT)")
    assert database.execute("INSERT INTO t VALUES ($1), ($2)", 1, 2) == 2
    assert database.execute("UPDATE t SET n = 3") == 2
    assert database.execute("UPDATE t SET n = $1 WHERE n = $2", 4, 5) == 0
    assert database.query("INSERT INTO t VALUES (9) RETURNING n") == [(9,)]


def test_an_error_in_a_transaction_rolls_it_back(database: PostgresDatabase) -> None:
    database.execute("CREATE TABLE t (n BIGINT)")

    def fail() -> None:
        with database.transaction():
            database.execute("INSERT INTO t VALUES (1)")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert database.query("SELECT n FROM t") == []
    database.execute("INSERT INTO t VALUES (2)")  # commits by itself again
    assert database.query("SELECT n FROM t") == [(2,)]


@pytest.mark.parametrize(("rows", "rounds"), [(100_000, 3), (10, 1000)])
def test_a_staging_table_does_not_grow_with_time(database: PostgresDatabase, rows: int, rounds: int) -> None:
    database.execute("CREATE TEMPORARY TABLE staged (c0 BIGINT)")
    for number in range(rounds):
        database.stage("staged", [pa.array([number] * rows)])
        assert database.query("SELECT count(*), min(c0), max(c0) FROM staged") == [(rows, number, number)]
        database.clear("staged")
    assert database.query("SELECT count(*) FROM staged") == [(0,)]
    ((size,),) = database.query("SELECT pg_relation_size('staged')")
    assert size <= 10 * 8192


def test_the_planner_knows_how_many_rows_are_staged(database: PostgresDatabase) -> None:
    database.execute("CREATE TEMPORARY TABLE staged (c0 BIGINT, c1 TEXT)")
    document = "x" * 1500
    for batch in range(4):
        keys = pa.array(range(batch * 500, (batch + 1) * 500))
        database.stage("staged", [keys, pa.array([document] * 500)])
    ((plan,),) = database.query("EXPLAIN SELECT * FROM staged")
    estimate = int(plan.partition("rows=")[2].partition(" ")[0])
    assert 1500 < estimate < 2500


def test_nobody_else_sees_what_is_staged(database: PostgresDatabase, postgres_url: str) -> None:
    run(postgres_url, "CREATE TABLE staged (c0 BIGINT)")  # a user's own, which has nothing to do with ours
    database.execute("CREATE TEMPORARY TABLE staged (c0 BIGINT)")
    database.stage("staged", [pa.array([1])])
    assert database.query("SELECT c0 FROM staged") == [(1,)]
    assert ask(postgres_url, "SELECT c0 FROM staged") == []
