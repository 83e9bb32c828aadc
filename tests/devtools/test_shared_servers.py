"""Servers that all processes of a test run share."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from devtools import server
from devtools.ports import free_port
from devtools.redis_server import RedisServer
from devtools.s3_server import S3Server
from devtools.server import ServerError
from devtools.shared_servers import RemoteServers, ServerHost

pytestmark = pytest.mark.processes


def test_whoever_asks_gets_the_same_server_and_it_is_gone_at_the_end() -> None:
    with ServerHost() as host, ThreadPoolExecutor() as pool:
        askers = [RemoteServers(host.address, host.key) for _ in range(4)]
        copies: list[RedisServer] = list(pool.map(lambda asker: asker.get("redis"), askers))
        assert len({copy.port for copy in copies}) == 1
        with copies[0].client() as one, copies[1].client() as other:
            one.set("key", "value")
            assert other.get("key") == b"value"
        home = host.get("redis").home
        assert home.is_dir()
    assert not home.exists()
    assert not Path(host.address).exists()


def test_a_copy_cannot_stop_it() -> None:
    with ServerHost() as host:
        copy: RedisServer = RemoteServers(host.address, host.key).get("redis")
        with pytest.raises(ServerError, match="shared by all tests"):
            copy.close()
        with copy.client() as client:
            assert client.ping()


def test_one_that_cannot_start_is_tried_once_and_everybody_hears_why(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def fails(redis: RedisServer) -> None:
        tries.append(redis)
        raise ServerError("there is no redis-server")

    monkeypatch.setattr(RedisServer, "start", fails)
    with ServerHost() as host:
        asker = RemoteServers(host.address, host.key)
        for _ in range(2):
            with pytest.raises(ServerError, match="there is no redis-server"):
                asker.get("redis")
    assert len(tries) == 1


class Draws:
    """Returns a given port first."""

    def __init__(self, port: int) -> None:
        self._left = [port]

    def __call__(self) -> int:
        return self._left.pop() if self._left else free_port()


def test_a_server_whose_port_was_taken_meanwhile_draws_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", free_port()))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(server, "free_port", Draws(port))
        with RedisServer() as redis, redis.client() as client:
            assert redis.port != port
            assert client.ping()


def test_a_server_that_was_left_on_the_port_does_not_pass_for_ours(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "free_port", Draws(s3_server.port))
    with S3Server() as own:
        assert own.port != s3_server.port
