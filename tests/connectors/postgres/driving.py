"""What the tests of this folder share: a look into the database, and a connector to drive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from adbc_driver_postgresql import dbapi

from headrace.connectors.postgres import PostgresConnector
from headrace.model.collections import Collection
from headrace.model.materializations import Materialization
from headrace.protocol.in_process import InProcess
from headrace.protocol.messages import Apply, ValidateBinding
from headrace.testing import Runtime, materialization_of
from tests.waiting import DEADLINE_SECONDS

CLIENT = InProcess(PostgresConnector())
Row = tuple[Any, ...]


def run(url: str, *statements: str) -> None:
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.executemany(statement, None)


def ask(url: str, question: str) -> list[Row]:
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(question)
        rows: list[Row] = cursor.fetchall()
        return rows


def columns_of(url: str, table: str = "things") -> dict[str, tuple[str, bool]]:
    """Type and whether it can be null, by name."""
    rows = ask(
        url,
        "SELECT column_name::text, data_type::text, is_nullable::text FROM information_schema.columns"
        f" WHERE table_name = '{table}'",
    )
    return {name: (declared, nullable == "YES") for name, declared, nullable in rows}


def terminate(url: str, pid: int) -> None:
    """Terminates a connection on the server and returns when it has ended."""
    assert ask(url, f"SELECT pg_terminate_backend({pid}, {DEADLINE_SECONDS * 1000:.0f})") == [(True,)]


def things(required: Sequence[str] = ("id",), **properties: dict[str, Any]) -> Collection:
    schema = {
        "type": "object",
        "required": list(required),
        "reduce": {"strategy": "merge"},
        "properties": {"id": {"type": "integer"}, **properties},
    }
    return Collection("things", ("/id",), schema)


def planned(
    url: str, collection: Collection, include: Sequence[str] = (), **resource: Any
) -> Materialization:
    binding = ValidateBinding(collection, {"table": "things", **resource})
    return materialization_of(CLIENT, "view", "postgres", {"url": url}, [binding], include)


def apply(url: str, collection: Collection, **resource: Any) -> str:
    return CLIENT.apply(Apply(planned(url, collection, **resource), "1")).action_description


def write(url: str, collection: Collection, *documents: dict[str, Any], n: int = 1, **resource: Any) -> int:
    """Commits one transaction and says how many documents were loaded in it."""
    with Runtime(CLIENT, planned(url, collection, **resource)) as runtime:
        return runtime.transact([list(documents)], {"n": n}, always_load=True).loaded
