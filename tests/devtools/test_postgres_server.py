"""The server that other tests rely on is a real one, and leaves nothing behind."""

from __future__ import annotations

import importlib.util
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from adbc_driver_postgresql import dbapi

from devtools import postgres_server
from devtools.postgres_server import PostgresServer
from devtools.server import ServerError
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
# A process that starts a server, says where it is, and waits to be killed.
OWNER = """
import time
from devtools.postgres_server import PostgresServer
with PostgresServer() as server:
    print(server.url, flush=True)
    time.sleep(600)
"""


def ask(url: str, question: str) -> Any:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(question)
        row = cursor.fetchone()
        assert row is not None
        return row[0]


def home_of(url: str) -> Path:
    return Path(ask(url, "SELECT current_setting('data_directory')")).parent


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.processes
def test_it_is_a_real_server_and_leaves_nothing_behind() -> None:
    with PostgresServer() as server:
        assert ask(server.url, "SELECT version()").startswith("PostgreSQL 18.")
        assert ask(server.url, "SELECT current_setting('fsync')") == "on"
        home = home_of(server.url)
        assert home.is_dir()

    assert not is_open(server.port)
    assert not home.exists()


def test_a_wrong_password_is_refused(postgres_server: PostgresServer) -> None:
    user, _, rest = postgres_server.url.rpartition("@")
    with pytest.raises(dbapi.OperationalError, match="password authentication failed"):
        dbapi.connect(f"{user}wrong@{rest}")


def test_each_test_gets_an_empty_database(postgres_server: PostgresServer, postgres_url: str) -> None:
    assert postgres_url != postgres_server.url
    assert ask(postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0


@pytest.mark.processes
def test_it_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=REPOSITORY, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        try:
            url = owner.stdout.readline().decode().strip()
            home = home_of(url)
        finally:
            owner.kill()

    wait_until(lambda: not home.exists(), "the removal of the server's folder")
    with pytest.raises(dbapi.OperationalError, match="Connection refused"):
        dbapi.connect(url)


@pytest.mark.full
def test_a_failed_start_shows_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    server_command = postgres_server._server_command
    monkeypatch.setattr(
        postgres_server, "_server_command", lambda *place: [*server_command(*place), "-c", "fsync=perhaps"]
    )
    with pytest.raises(ServerError, match='parameter "fsync" requires a Boolean value'):
        PostgresServer().start()


def test_without_the_wheel_it_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ServerError, match="make setup"):
        PostgresServer().start()
