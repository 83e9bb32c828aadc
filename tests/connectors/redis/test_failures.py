"""Failures that may pass are told apart from those that will not."""

from __future__ import annotations

import os
import signal
import socket
from contextlib import closing
from typing import Any

import pytest
from redis._parsers.base import BaseParser

from devtools.ports import free_port
from devtools.redis_server import RedisServer
from headrace.connectors.config import read_config
from headrace.connectors.redis.config import RedisEndpoint
from headrace.connectors.redis.failures import as_endpoint_failure
from headrace.connectors.redis.session import Session
from headrace.errors import EndpointError, EndpointUnavailable, HeadraceError
from headrace.testing import Runtime
from headrace.testing.freezing import freeze
from tests.connectors.redis.driving import CLIENT, apply, ask, documents_keys, planned, things, write
from tests.waiting import wait_until

COUNTS = things(count={"type": "integer", "reduce": {"strategy": "sum"}})


def session_of(url: str, **config: Any) -> Session:
    return Session(read_config(RedisEndpoint, {"url": url, **config}, "endpoint"))


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ("LOADING Redis is loading the dataset in memory", EndpointUnavailable, "loading the dataset"),
        ("READONLY You can't write against a read only replica.", EndpointUnavailable, "read only replica"),
        ("MASTERDOWN Link with MASTER is down", EndpointUnavailable, "Link with MASTER"),
        ("OOM command not allowed when used memory > 'maxmemory'.", EndpointUnavailable, "maxmemory"),
        ("MISCONF Redis is configured to save RDB snapshots", EndpointUnavailable, "MISCONF"),
        ("NOREPLICAS Not enough good replicas to write.", EndpointUnavailable, "NOREPLICAS"),
        ("BUSY Redis is busy running a script.", EndpointUnavailable, "BUSY"),
        ("CLUSTERDOWN The cluster is down", EndpointUnavailable, "cluster is down"),
        ("ERR max number of clients reached", EndpointUnavailable, "max number of clients"),
        ("NOAUTH Authentication required.", EndpointError, "Authentication required.; see to 'url'"),
        ("WRONGPASS invalid username-password pair", EndpointError, "invalid username-password pair; see to"),
        ("NOPERM this user has no permissions", EndpointError, "no permissions; see to the permissions"),
        ("MOVED 3999 127.0.0.1:6381", EndpointError, "a Redis Cluster, which is not supported"),
        ("ASK 3999 127.0.0.1:6381", EndpointError, "a Redis Cluster, which is not supported"),
        ("CROSSSLOT Keys in request don't hash to the same slot", EndpointError, "a Redis Cluster"),
        ("WRONGTYPE Operation against a key", EndpointError, "WRONGTYPE"),
        ("ERR unknown command 'X'", EndpointError, "unknown command"),
    ],
)
def test_what_a_server_may_answer(line: str, kind: type[HeadraceError], says: str) -> None:
    error = as_endpoint_failure(BaseParser.parse_error(line))  # type: ignore[no-untyped-call]
    assert type(error) is kind
    assert says in str(error)
    assert str(error).startswith("Redis: ")


def test_a_long_message_is_one_line_and_cut() -> None:
    error = as_endpoint_failure(BaseParser.parse_error("ERR a\nb" + "x" * 2000))  # type: ignore[no-untyped-call]
    assert "a b" in str(error)
    assert len(str(error)) < 600


@pytest.mark.processes
@pytest.mark.parametrize(
    ("url", "kind", "says"),
    [
        ("redis://127.0.0.1:1", EndpointUnavailable, "Connection refused"),
        ("redis://nowhere.invalid", EndpointUnavailable, "nowhere.invalid"),
        ("unix:///nowhere/redis.sock", EndpointUnavailable, "/nowhere/redis.sock"),
        ("redis://:wrong@127.0.0.1:{port}", EndpointError, "invalid username-password pair"),
        ("redis://nobody:wrong@127.0.0.1:{port}", EndpointError, "invalid username-password pair"),
        ("redis://127.0.0.1:{port}", EndpointError, "Authentication required"),
        (
            "redis://:{password}@127.0.0.1:{port}/99",
            EndpointError,
            "DB index is out of range|invalid DB index",
        ),
    ],
)
def test_connecting(own_server: RedisServer, url: str, kind: type[HeadraceError], says: str) -> None:
    url = url.format(port=own_server.port, password=own_server.password)
    with pytest.raises(kind, match=f"^Redis: [^\n]*({says})[^\n]*$"):
        planned(url, things())


def test_a_server_that_does_not_answer() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        url = f"redis://:p@127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(EndpointUnavailable, match=r"(?i)timeout"):
            session_of(url, timeout=0.2)


@pytest.mark.processes
def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(own_server: RedisServer) -> None:
    pid = int(ask(own_server.url, "INFO", "server")["process_id"])
    with session_of(own_server.url) as session:
        session._connection._sock.settimeout(0.1)  # from now on; connecting may take as long as it needs
        freeze(pid)
        try:
            with pytest.raises(EndpointUnavailable, match=r"(?i)timeout"):
                session.call("SET", "k", "v")
        finally:
            os.kill(pid, signal.SIGCONT)
        ask(own_server.url, "PING")  # the answer has arrived by now
        with pytest.raises(EndpointUnavailable, match="connection was lost"):
            session.call("GET", "k")


def test_a_connection_that_is_lost_stays_lost(redis_url: str) -> None:
    with session_of(redis_url) as session:
        session.call("WATCH", "k")
        ask(redis_url, "CLIENT", "KILL", "ID", session.call("CLIENT", "ID"))
        with pytest.raises(EndpointUnavailable):
            session.transaction([("XADD", "k", "*", "a", "b")])
        with pytest.raises(EndpointUnavailable, match="connection was lost"):
            session.call("PING")
    assert ask(redis_url, "EXISTS", "k") == 0


@pytest.mark.processes
def test_a_read_only_server_may_be_writable_later(own_server: RedisServer) -> None:
    server = own_server
    ask(server.url, "FLUSHALL")
    apply(server.url, COUNTS)
    ask(server.url, "REPLICAOF", "127.0.0.1", 1)
    with pytest.raises(EndpointUnavailable, match="read only replica"):
        write(server.url, COUNTS, {"id": 1})
    ask(server.url, "REPLICAOF", "NO", "ONE")
    assert write(server.url, COUNTS, {"id": 1}) == 0


@pytest.mark.processes
def test_a_server_that_is_full_writes_nothing_of_a_chunk(own_server: RedisServer) -> None:
    server = own_server
    ask(server.url, "FLUSHALL")
    apply(server.url, COUNTS)
    runtime = Runtime(CLIENT, planned(server.url, COUNTS))
    runtime.open()
    ask(server.url, "CONFIG", "SET", "maxmemory", 1)
    with pytest.raises(EndpointUnavailable, match="maxmemory"):
        runtime.transact([[{"id": 1, "count": 1}, {"id": 2, "count": 1}]], {"n": 1})
    assert documents_keys(server.url) == set()
    ask(server.url, "CONFIG", "SET", "maxmemory", 0)
    write(server.url, COUNTS, {"id": 1})


@pytest.mark.processes
def test_a_user_without_permission_is_told_what_is_missing(own_server: RedisServer) -> None:
    url = own_server.url
    ask(url, "FLUSHALL")
    ask(url, "ACL", "SETUSER", "reader", "on", ">p", "~*", "+@read", "+@transaction", "+@connection")
    try:
        with pytest.raises(EndpointError, match="permissions to run the 'hset' command"):
            apply(f"redis://reader:p@{url.partition('@')[2]}", COUNTS)
    finally:
        ask(url, "ACL", "DELUSER", "reader")


@pytest.mark.processes
def test_a_cluster_is_refused() -> None:
    # By itself it takes its port and 10,000 more, which is one that somebody's connection may have.
    with RedisServer(settings={"cluster-enabled": "yes", "cluster-port": str(free_port())}) as server:
        with pytest.raises(EndpointUnavailable, match="slot not served"):
            planned(server.url, COUNTS)
        ask(server.url, "CLUSTER", "ADDSLOTS", *range(16384))
        with server.client() as client:
            wait_until(lambda: client.cluster("INFO")["cluster_state"] == "ok", "a cluster with all slots")
        with pytest.raises(EndpointError, match="a Redis Cluster, which is not supported"):
            apply(server.url, COUNTS)


def test_an_error_within_a_transaction_is_not_overlooked(redis_url: str) -> None:
    ask(redis_url, "SET", "text", "x")
    with session_of(redis_url) as session:
        with pytest.raises(EndpointError, match="WRONGTYPE"):
            session.transaction([("SET", "other", "x"), ("XADD", "text", "*", "a", "b")])
        with pytest.raises(EndpointError, match="unknown command"):
            session.transaction([("SET", "third", "x"), ("NONSENSE",)])
    assert ask(redis_url, "EXISTS", "third") == 0


def test_answers_stay_with_their_commands_after_an_error(redis_url: str) -> None:
    with session_of(redis_url) as session:
        with pytest.raises(EndpointError, match="unknown command"):
            session.pipeline([("SET", "k", "v"), ("NONSENSE",), ("GET", "k")])
        assert session.call("GET", "k") == b"v"
