"""Connections of a process share what the driver knows of a database, and nothing else."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import adbc_driver_postgresql
import pytest

from headrace.connectors.postgres import connections
from headrace.connectors.postgres.database import PostgresDatabase
from headrace.errors import EndpointError
from tests.connectors.postgres.driving import ask, run
from tests.waiting import wait_until


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The databases whose catalog was read."""
    urls: list[str] = []
    really = adbc_driver_postgresql.connect

    def connect(url: str, **options: Any) -> Any:
        if not options:  # which those of `run` and `ask` have
            urls.append(url)
        return really(url, **options)

    connections._database.cache_clear()
    monkeypatch.setattr(adbc_driver_postgresql, "connect", connect)
    return urls


def test_the_catalog_is_read_once(postgres_url: str, read: list[str]) -> None:
    for _ in range(3):
        with PostgresDatabase(postgres_url) as one, PostgresDatabase(postgres_url) as other:
            assert one.query("SELECT pg_backend_pid()") != other.query("SELECT pg_backend_pid()")
    assert read == [postgres_url]
    named = f"{postgres_url}?application_name=another"
    with PostgresDatabase(named) as database:
        assert database.query("SELECT current_setting('application_name')") == [("another",)]
    assert read == [postgres_url, named]


def test_a_closed_connection_is_gone(postgres_url: str) -> None:
    with PostgresDatabase(postgres_url) as database:
        ((pid,),) = database.query("SELECT pg_backend_pid()")
    still_there = f"SELECT pid FROM pg_stat_activity WHERE pid = {pid}"
    wait_until(lambda: ask(postgres_url, still_there) == [], "the end of the server's side")


def test_what_failed_is_tried_anew(postgres_url: str, read: list[str]) -> None:
    late = f"{postgres_url}?user=late&password=p"
    for _ in range(2):
        with pytest.raises(EndpointError, match="authentication failed"):
            PostgresDatabase(late)
    run(postgres_url, "CREATE ROLE late LOGIN PASSWORD 'p'")
    try:
        PostgresDatabase(late).close()
        assert read == [late] * 3
        run(postgres_url, "ALTER ROLE late NOLOGIN")
        with pytest.raises(EndpointError, match="not permitted to log in"):
            PostgresDatabase(late)
    finally:
        run(postgres_url, "DROP ROLE late")


def test_threads_connect_at_once(postgres_url: str) -> None:
    connections._database.cache_clear()

    def one(number: int) -> int:
        with PostgresDatabase(postgres_url) as database:
            found: int = database.query("SELECT $1::bigint", number)[0][0]
            return found

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(one, range(64))) == list(range(64))


def test_more_databases_than_are_kept(postgres_url: str) -> None:
    connections._database.cache_clear()
    urls = [f"{postgres_url}?application_name=n{number}" for number in range(20)]
    databases = [PostgresDatabase(url) for url in urls]
    for number, database in enumerate(databases):
        assert database.query("SELECT current_setting('application_name')") == [(f"n{number}",)]
        database.close()


def test_a_forked_process_has_its_own(postgres_url: str, read: list[str]) -> None:
    with PostgresDatabase(postgres_url) as database:
        child = os.fork()
        if not child:
            status = 1
            try:
                with PostgresDatabase(postgres_url) as own:
                    status = 0 if len(read) == 2 and own.query("SELECT 1") == [(1,)] else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert database.query("SELECT 2") == [(2,)]
