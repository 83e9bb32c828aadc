"""The Redis that other tests rely on is a real one, keeps what it should, and leaves nothing behind."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.retry import Retry

from devtools.redis_server import RedisServer
from devtools.server import ServerError
from tests.waiting import wait_until

REPOSITORY = Path(__file__).parents[2]
# A process that starts a server, says where it is, and waits to be killed.
OWNER = """
import time
from devtools.redis_server import RedisServer
with RedisServer() as server:
    print(server.home, flush=True)
    time.sleep(600)
"""


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.processes
def test_it_is_a_real_server_and_leaves_nothing_behind() -> None:
    with RedisServer() as server:
        with server.client() as client:
            assert client.info("server")["redis_version"]
        with pytest.raises(ServerError, match="already started"):
            server.start()
        home = server.home
        assert home.is_dir()
    assert not is_open(server.port)
    assert not home.exists()


def test_a_wrong_password_is_refused(redis_server: RedisServer) -> None:
    port, once = redis_server.port, Retry(NoBackoff(), 0)
    with redis.Redis(port=port, password="wrong", retry=once) as client, pytest.raises(AuthenticationError):
        client.ping()


@pytest.mark.processes
def test_what_it_has_answered_outlives_a_kill() -> None:
    with RedisServer(append_only=True) as server:
        port = server.port
        with server.client() as client:
            client.set("k", "v")
        server.kill()
        assert not is_open(port)
        server.start()
        with server.client() as client:
            assert client.get("k") == b"v"
        server.stop()
        server.start()
        with server.client() as client:
            assert client.get("k") == b"v"
    assert server.port == port


@pytest.mark.parametrize("time", ["first", "second"])
def test_each_test_gets_a_database_with_nothing_in_it(redis_url: str, time: str) -> None:
    with redis.Redis.from_url(redis_url) as client:
        assert client.dbsize() == 0
        client.set("left", time)


@pytest.mark.processes
def test_it_ends_with_the_process_that_started_it() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], cwd=REPOSITORY, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        try:
            home = Path(owner.stdout.readline().decode().strip())
            assert home.is_dir()
        finally:
            owner.kill()
    wait_until(lambda: not home.exists(), "the removal of the server's folder")


@pytest.mark.processes
def test_a_failed_start_shows_the_log() -> None:
    server = RedisServer(settings={"appendfsync": "perhaps"})
    with pytest.raises(ServerError, match="appendfsync"):
        server.start()


def test_without_the_program_it_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(ServerError, match="apt-get install redis-server"):
        RedisServer().start()
