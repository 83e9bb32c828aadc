"""What a user may configure, and what the connector says of it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from devtools.redis_server import RedisServer
from headrace.connectors.config import read_config
from headrace.connectors.redis.config import RedisEndpoint, RedisResource
from headrace.connectors.redis.session import Session
from headrace.connectors.redis.urls import Url, parse_url
from headrace.errors import ConfigError, HeadraceError
from headrace.protocol.messages import Spec
from tests.connectors.redis.driving import CLIENT, ask, planned, things

GOLDEN = Path(__file__).parent / "golden"


def connected(**config: Any) -> str:
    """As whom."""
    with Session(read_config(RedisEndpoint, config, "endpoint")) as session:
        user: bytes = session.call("ACL", "WHOAMI")
        return user.decode()


def configure(endpoint: dict[str, Any], resource: dict[str, Any]) -> None:
    read_config(RedisResource, resource, "resource")
    Session(read_config(RedisEndpoint, endpoint, "endpoint")).close()


def test_what_spec_says() -> None:
    said = json.dumps(asdict(CLIENT.spec(Spec())), indent=2)
    assert said + "\n" == (GOLDEN / "spec.json").read_text()


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("redis://cache", Url("cache")),
        ("redis://cache/", Url("cache")),
        ("redis://cache:6380/3", Url("cache", 6380, database=3)),
        ("rediss://cache", Url("cache", is_tls=True)),
        ("redis://:p%40ss@cache", Url("cache", password="p@ss")),
        ("redis://me@cache", Url("cache", user="me")),
        ("redis://me:p%3A%2F@[::1]:1/0", Url("::1", 1, user="me", password="p:/")),
        ("unix:///run/redis.sock", Url(path="/run/redis.sock")),
        ("unix://me:p@/run/a%20b?db=2", Url(path="/run/a b", database=2, user="me", password="p")),
    ],
)
def test_what_is_a_url(url: str, parts: Url) -> None:
    assert parse_url(url) == parts
    assert "p@ss" not in repr(parts)


@pytest.mark.parametrize(
    "url",
    [
        "cache",
        "http://cache",
        "redis://",
        "redis://cache:port",
        "redis://cache:70000",
        "redis://cache/zero",
        "redis://me:hunter2@@cache",
        "redis://me:hun/ter2@cache",
        "redis://me:hun%zzter2@cache",
        "redis://me:hunter2@cache?ssl_cert_reqs=none",
        "redis://me:hunter2@cache\n",
        "unix://run/redis.sock",
        "unix:///run/redis.sock?db=x",
    ],
)
def test_what_is_not_a_url(url: str) -> None:
    with pytest.raises(ConfigError, match=r"^endpoint: key 'url': it does not read as redis://") as caught:
        read_config(RedisEndpoint, {"url": url}, "endpoint")
    assert "ter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("endpoint", "resource", "sentence"),
    [
        ({}, {"prefix": "p"}, "endpoint: key 'url': Field required"),
        ({"url": "redis://x", "pasword": "hunter2"}, {"prefix": "p"}, "endpoint: key 'pasword'"),
        ({"url": "redis://x", "timeout": 0}, {"prefix": "p"}, "endpoint: key 'timeout': .* greater than 0"),
        ({"url": "redis://x", "replicas": -1}, {"prefix": "p"}, "endpoint: key 'replicas'"),
        (
            {"url": "redis://x", "password_env": "NO_SUCH"},
            {"prefix": "p"},
            "no environment variable 'NO_SUCH'",
        ),
        (
            {"url": "rediss://x", "ca_file": "no.pem"},
            {"prefix": "p"},
            "key 'ca_file': there is no file 'no.pem'",
        ),
        ({"url": "redis://x"}, {}, "resource: key 'prefix': Field required"),
        ({"url": "redis://x"}, {"prefix": ""}, "resource: key 'prefix'"),
        ({"url": "redis://x"}, {"prefix": "headrace"}, "key 'prefix': keys that begin with 'headrace:' are"),
        (
            {"url": "redis://x"},
            {"prefix": "headrace:x"},
            "key 'prefix': keys that begin with 'headrace:' are",
        ),
        (
            {"url": "redis://x"},
            {"prefix": "p", "format": "xml"},
            "key 'format': Input should be 'json' or 'hash'",
        ),
        ({"url": "redis://x"}, {"prefix": "p", "ttl": 0}, "resource: key 'ttl'"),
        (
            {"url": "redis://x"},
            {"prefix": "p", "ttl": 1, "delta_updates": True},
            "resource: 'ttl' is for documents",
        ),
    ],
)
def test_a_wrong_configuration_is_one_sentence(
    endpoint: dict[str, Any], resource: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        configure(endpoint, resource)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.processes
def test_any_password_and_user_can_be_configured(
    own_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, password = "a-user@home", "p@:/?#%&=+'\"\\\u00fc[]"
    ask(own_server.url, "ACL", "SETUSER", user, "on", f">{password}", "~*", "+@all")
    host = f"127.0.0.1:{own_server.port}"
    name = quote(user, safe="")
    monkeypatch.setenv("CACHE_PASSWORD", password)
    try:
        for config in (
            {"url": f"redis://{name}:{quote(password, safe='')}@{host}"},
            {"url": f"redis://{name}@{host}", "password": password},
            {"url": f"redis://{name}@{host}/1", "password_env": "CACHE_PASSWORD"},
            {"url": f"redis://{name}:wrong@{host}", "password": password},
            {"url": f"unix://{name}@{own_server.home}/redis.sock?db=3", "password": password},
        ):
            assert connected(**config) == user
    finally:
        ask(own_server.url, "ACL", "DELUSER", user)
    assert connected(url=own_server.url) == "default"


@pytest.mark.processes
def test_a_database_of_its_own(own_server: RedisServer) -> None:
    first, fifth = own_server.url, own_server.url.removesuffix("/0") + "/5"
    with Session(read_config(RedisEndpoint, {"url": fifth}, "endpoint")) as session:
        session.call("SET", "k", "v")
    assert ask(first, "GET", "k") is None
    assert ask(fifth, "GET", "k") == "v"


@pytest.mark.processes
def test_no_secret_is_told(own_server: RedisServer) -> None:
    view = planned(own_server.url, things())
    assert own_server.password not in repr(view)
    endpoint = read_config(RedisEndpoint, {"url": own_server.url, "password": "hunter2"}, "endpoint")
    assert own_server.password not in repr(endpoint)
    assert "hunter2" not in repr(endpoint)
    with pytest.raises(HeadraceError) as caught:
        Session(endpoint)
    chain: BaseException | None = caught.value
    while chain is not None:
        assert "hunter2" not in str(chain)
        assert own_server.password not in str(chain)
        chain = chain.__cause__ or chain.__context__
