"""Failures that may pass are told apart from those that will not."""

from __future__ import annotations

import random
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest

from headrace.connectors.postgres import database as database_module
from headrace.connectors.postgres.database import PostgresDatabase
from headrace.errors import EndpointError, EndpointUnavailable, HeadraceError
from headrace.model.collections import Collection
from headrace.model.key_range import FULL_RANGE
from headrace.protocol.messages import Acknowledge, Flush, Load, Open
from headrace.protocol.stream import RuntimeStream
from headrace.testing import Runtime
from tests.connectors.postgres.driving import CLIENT, apply, ask, planned, run, terminate, things, write

NOTES = things(note={"type": "string"})


def with_password(url: str, password: str) -> str:
    user, _, address = url.partition("@")
    return f"{user.rpartition(':')[0]}:{password}@{address}"


def backend(database: PostgresDatabase) -> int:
    pid: int = database.query("SELECT pg_backend_pid()")[0][0]
    return pid


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        (lambda url: with_password(url, "wrong"), EndpointError, "password authentication failed for user"),
        (lambda url: url.replace("headrace:", "nobody:"), EndpointError, "password authentication failed"),
        (lambda url: f"{url}_nowhere", EndpointError, "database .* does not exist"),
        (lambda url: f"{url}?sslmode=require", EndpointError, "server does not support SSL"),
        (lambda url: f"{url}?sslmode=perhaps", EndpointError, "invalid sslmode value"),
        (lambda url: f"{url}?ssl_mode=require", EndpointError, "invalid URI query parameter"),
        (lambda url: "postgresql://127.0.0.1:1/x", EndpointUnavailable, "Connection refused"),
        (lambda url: "postgresql://nowhere.invalid/x", EndpointUnavailable, "could not translate host name"),
        (lambda url: "postgresql://%2Fnowhere/x", EndpointUnavailable, "No such file or directory"),
    ],
)
def test_connecting(postgres_url: str, change: Any, kind: type[HeadraceError], says: str) -> None:
    with pytest.raises(kind, match=f"^PostgreSQL: [^\n]*{says}[^\n]*$"):
        PostgresDatabase(change(postgres_url))


def test_a_server_without_a_free_connection_may_have_one_later(postgres_url: str) -> None:
    run(postgres_url, "CREATE ROLE crowd LOGIN PASSWORD 'p' CONNECTION LIMIT 0")
    try:
        with pytest.raises(EndpointUnavailable, match="too many connections"):
            PostgresDatabase(with_password(postgres_url.replace("headrace:", "crowd:"), "p"))
    finally:
        run(postgres_url, "DROP ROLE crowd")


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("08006", EndpointUnavailable),
        ("25006", EndpointUnavailable),
        ("25P02", EndpointError),
        ("25P03", EndpointUnavailable),
        ("40001", EndpointUnavailable),
        ("40P01", EndpointUnavailable),
        ("53100", EndpointUnavailable),
        ("55P03", EndpointUnavailable),
        ("57014", EndpointUnavailable),
        ("57P01", EndpointUnavailable),
        ("22P02", EndpointError),
        ("23505", EndpointError),
        ("42501", EndpointError),
        ("55000", EndpointError),
        ("XX000", EndpointError),
    ],
)
def test_statements(database: PostgresDatabase, state: str, kind: type[HeadraceError]) -> None:
    raise_it = f"RAISE EXCEPTION E'first\nline' USING ERRCODE = '{state}', DETAIL = 'and more'"
    with pytest.raises(kind, match=rf"^PostgreSQL: first line: and more \(SQLSTATE {state}\)$"):
        database.execute(f"DO $$ BEGIN {raise_it}; END $$")


def test_a_long_message_is_cut(database: PostgresDatabase) -> None:
    with pytest.raises(EndpointError) as caught:
        database.query(f"SELECT '{'x' * 5000}'::int")
    assert len(caught.value.message) < 600


def test_a_connection_lost_between_statements(database: PostgresDatabase, postgres_url: str) -> None:
    terminate(postgres_url, backend(database))
    for attempt in (
        lambda: database.query("SELECT 1"),
        lambda: database.execute("BEGIN"),
        lambda: database.stage("staged", [pa.array([1])]),
        lambda: list(database.fetch("SELECT ''", pa.schema([]))),
    ):
        with pytest.raises(EndpointUnavailable):
            attempt()


def test_a_connection_lost_while_a_result_is_read(database: PostgresDatabase, postgres_url: str) -> None:
    pid = backend(database)
    rows = database.fetch("SELECT repeat('x', 10000) FROM generate_series(1, 100000)", pa.schema([]))
    next(rows)
    terminate(postgres_url, pid)
    with pytest.raises(EndpointUnavailable, match=r"^PostgreSQL: .*server closed the connection"):
        list(rows)


def test_a_connection_lost_in_a_transaction_rolls_back(database: PostgresDatabase, postgres_url: str) -> None:
    database.execute("CREATE TABLE t (n BIGINT)")

    def transact() -> None:
        with database.transaction():
            database.execute("INSERT INTO t VALUES (1)")
            terminate(postgres_url, backend(database))
            database.execute("INSERT INTO t VALUES (2)")

    with pytest.raises(EndpointUnavailable):
        transact()
    assert ask(postgres_url, "SELECT * FROM t") == []


def test_a_stream_whose_backend_is_killed_can_be_tried_again(postgres_url: str) -> None:
    apply(postgres_url, NOTES)
    materialization = planned(postgres_url, NOTES)

    def loads(stream: RuntimeStream) -> None:
        stream.send(Open(materialization, "1", FULL_RANGE))
        stream.receive()
        ours = "application_name = 'headrace' AND datname = current_database()"
        for (pid,) in ask(postgres_url, f"SELECT pid FROM pg_stat_activity WHERE {ours}"):
            terminate(postgres_url, pid)
        stream.send(Acknowledge())
        stream.receive()
        stream.send(Load(0, pa.record_batch({"id": [1]})))
        stream.send(Flush())
        stream.receive()

    with pytest.raises(EndpointUnavailable), CLIENT.transactions() as stream:
        loads(stream)
    assert write(postgres_url, NOTES, {"id": 1}) == 0


def test_one_that_stops_in_its_commit_loses_its_locks(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(postgres_url, "CREATE TABLE t (n BIGINT)", "INSERT INTO t VALUES (1)")
    assert database_module.SETTINGS["idle_in_transaction_session_timeout"] == "60s"
    monkeypatch.setitem(database_module.SETTINGS, "idle_in_transaction_session_timeout", "2s")

    zombie = PostgresDatabase(postgres_url)

    def stop_in_commit() -> None:
        with zombie.transaction():
            zombie.execute("UPDATE t SET n = 2")
            # Waits for the zombie's lock; once that has gone, so has the zombie's change.
            run(postgres_url, "SET lock_timeout = '60s'", "UPDATE t SET n = n + 10")
            zombie.execute("UPDATE t SET n = 3")

    with closing(zombie), pytest.raises(EndpointUnavailable, match="idle-in-transaction timeout"):
        stop_in_commit()
    assert ask(postgres_url, "SELECT n FROM t") == [(11,)]


@pytest.mark.parametrize("document", [{"id": 1, "note": "a\0b"}, {"id": 1, "note": "\0"}])
def test_the_character_that_postgresql_lacks_is_named(postgres_url: str, document: dict[str, Any]) -> None:
    apply(postgres_url, NOTES)
    with pytest.raises(EndpointError, match=r"^a text value holds the character U\+0000"):
        write(postgres_url, NOTES, document)
    assert ask(postgres_url, "SELECT * FROM things") == []


def test_it_is_no_trouble_within_a_document(postgres_url: str) -> None:
    apply(postgres_url, things())
    document = {"id": 1, "note": "a\0b"}
    write(postgres_url, things(), document)
    with Runtime(CLIENT, planned(postgres_url, things())) as runtime:
        assert runtime.transact([[{"id": 1}]], {"n": 2}).loaded == 1
    assert ask(postgres_url, "SELECT _document::text FROM things") == [('{"id":1,"note":"a\\u0000b"}',)]


def test_an_instant_that_postgresql_lacks_is_refused(database: PostgresDatabase) -> None:
    database.execute("CREATE TEMPORARY TABLE staged (c0 TIMESTAMPTZ)")
    # What the driver writes for this one means -infinity.
    instants = pa.array([0, -9222425352054775808, None], pa.timestamp("us", tz="UTC"))
    with pytest.raises(EndpointError, match="before 4714 BC"):
        database.stage("staged", [instants])
    database.execute("CREATE TEMPORARY TABLE dates (c0 DATE)")
    with pytest.raises(EndpointError, match=r"date out of range \(SQLSTATE 22008\)"):
        database.stage("dates", [pa.array([-(2**31)], pa.int32()).cast(pa.date32())])


def test_a_key_that_no_index_takes_is_refused(postgres_url: str) -> None:
    schema = {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}}
    collection = Collection("things", ("/name",), schema)
    apply(postgres_url, collection)
    name = random.Random(1).randbytes(4000).hex()  # which does not compress
    with pytest.raises(EndpointError, match=r"index row size .* \(SQLSTATE 54000\)"):
        write(postgres_url, collection, {"name": name})
