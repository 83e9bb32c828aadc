"""What a user may configure, and the URL that libpq gets of it."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, urlsplit

import pytest

from devtools.postgres_server import PostgresServer
from headrace.connectors.config import read_config
from headrace.connectors.postgres import PostgresConnector
from headrace.connectors.postgres.config import PostgresEndpoint, PostgresResource
from headrace.connectors.postgres.connection_url import connection_url
from headrace.errors import ConfigError
from headrace.protocol.messages import Spec
from tests.connectors.postgres.driving import ask, run

HOST = {"host": "db.example", "database": "shop", "user": "writer"}
URL = "postgresql://writer@db.example/shop"


def endpoint(**config: Any) -> PostgresEndpoint:
    return read_config(PostgresEndpoint, config, "endpoint")


def parameters(**config: Any) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(connection_url(endpoint(**config))).query, strict_parsing=True))


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        ({}, "endpoint: give exactly one of 'url' and 'host'"),
        ({**HOST, "url": URL}, "endpoint: give exactly one of 'url' and 'host'"),
        ({"host": "db", "user": "me"}, "endpoint: 'host' needs 'database' as well"),
        ({"host": "db", "database": "shop"}, "endpoint: 'host' needs 'user' as well"),
        ({"url": URL, "user": "me"}, "endpoint: 'user' is part of 'url': write it there"),
        ({"url": URL, "port": 5432}, "endpoint: 'port' is part of 'url': write it there"),
        ({**HOST, "port": 0}, "endpoint: key 'port': Input should be greater than or equal to 1"),
        ({**HOST, "sslmode": "yes"}, "endpoint: key 'sslmode': Input should be 'disable', 'allow'"),
        ({**HOST, "schema": "x" * 64}, "endpoint: key 'schema': .* has 64 bytes, and a name .* at most 63"),
        ({**HOST, "schema_name": "x"}, "endpoint: key 'schema_name': Extra inputs .* keys are .* schema,"),
        ({**HOST, "schema": ""}, "endpoint: key 'schema': '' cannot be a name in PostgreSQL"),
    ],
)
def test_a_wrong_configuration_is_one_sentence(config: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        endpoint(**config)


@pytest.mark.parametrize(
    "url",
    [
        "db.example",
        "mysql://writer@db.example/shop",
        "postgresql://writer:p@ss@db.example/shop",
        "postgresql://writer:p/ss@db.example/shop",
        "postgresql://writer:1/ss@db.example/shop",
        "postgresql://writer:p?ss@db.example/shop",
        "postgresql://writer:p#ss@db.example/shop",
        "postgresql://writer:p%zz@db.example/shop",
        "postgresql://writer:p%00@db.example/shop",
        "postgresql://writer:p ss@db.example/shop",
        "postgresql://[::1/shop",
        "postgresql://db.example:port/shop",
        "postgresql://db.example/shop?sslmode",
        "postgresql://db.example/shop\n",
    ],
)
def test_what_is_not_a_url(url: str) -> None:
    with pytest.raises(ConfigError, match="key 'url': it does not read as postgresql://"):
        endpoint(url=url)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://",
        "postgres://db.example",
        "postgresql://writer:p%40%3A%2F%25%23ss@db.example:5433/shop",
        "postgresql://one:5432,two:5433/shop?target_session_attrs=read-write",
        "postgresql://[2001:db8::1]:5432/shop",
        "postgresql://%2Fvar%2Frun%2Fpostgresql/shop",
        "postgresql:///shop?host=/var/run/postgresql&user=writer",
    ],
)
def test_what_is_a_url(url: str) -> None:
    assert connection_url(endpoint(url=url)).startswith(url.partition("?")[0] + "?")


def test_fields_become_parameters() -> None:
    config = {**HOST, "password": "secret", "sslmode": "verify-full", "sslrootcert": "/etc/root.pem"}
    given = parameters(**config, sslcert="c.pem", sslkey="c.key", connect_timeout=3)
    assert given == {
        "host": "db.example",
        "port": "5432",
        "dbname": "shop",
        "user": "writer",
        "password": "secret",
        "sslmode": "verify-full",
        "sslrootcert": "/etc/root.pem",
        "sslcert": "c.pem",
        "sslkey": "c.key",
        "connect_timeout": "3",
        "application_name": "headrace",
        "client_encoding": "UTF8",
        "keepalives_idle": "30",
        "keepalives_interval": "10",
        "keepalives_count": "3",
        "tcp_user_timeout": "60000",
    }


def test_fields_outrank_the_url_which_outranks_our_defaults() -> None:
    url = f"{URL}?application_name=mine%20%26%20yours&sslmode=prefer&connect_timeout=7"
    given = parameters(url=url, sslmode="require")
    assert given["application_name"] == "mine & yours"
    assert given["sslmode"] == "require"
    assert given["connect_timeout"] == "7"
    assert parameters(url=URL)["connect_timeout"] == "10"
    assert "port" not in given


def test_the_password_is_taken_from_where_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "from the environment")
    assert parameters(**HOST, password_env="SHOP_PASSWORD")["password"] == "from the environment"
    assert parameters(url=URL, password_env="SHOP_PASSWORD")["password"] == "from the environment"
    assert parameters(**HOST, password="p", password_env="SHOP_PASSWORD")["password"] == "p"
    assert parameters(url=f"{URL}?password=p", password_env="SHOP_PASSWORD")["password"] == "p"
    with_password = "postgresql://writer:p@db.example/shop"
    assert "password" not in parameters(url=with_password, password_env="SHOP_PASSWORD")
    assert parameters(url=with_password, password="other")["password"] == "other"
    assert "password" not in parameters(**HOST)


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    with pytest.raises(ConfigError, match="'password_env': there is no environment variable 'SHOP_PASSWORD'"):
        connection_url(endpoint(**HOST, password_env="SHOP_PASSWORD"))


def test_any_password_and_user_can_be_configured(
    postgres_server: PostgresServer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, password = "a user@home", "p@:/?#%&=+'\"\\ \u00fc[]"
    database = urlsplit(postgres_url).path[1:]
    literal = password.replace("'", "''")
    run(postgres_url, f"CREATE ROLE \"{user}\" LOGIN PASSWORD '{literal}'")
    address = f"127.0.0.1:{postgres_server.port}/{database}"
    by_host = {"host": "127.0.0.1", "port": postgres_server.port, "database": database, "user": user}
    monkeypatch.setenv("SHOP_PASSWORD", password)
    monkeypatch.setenv("PGPASSWORD", password)
    try:
        for config in (
            {**by_host, "password": password},
            {**by_host, "password_env": "SHOP_PASSWORD"},
            by_host,
            {"url": f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@{address}"},
            {"url": f"postgresql://{quote(user, safe='')}@{address}", "password": password},
        ):
            assert ask(connection_url(endpoint(**config)), "SELECT current_user::text") == [(user,)]
    finally:
        run(postgres_url, f'DROP ROLE "{user}"')


def test_a_resource_names_a_table_and_perhaps_its_schema() -> None:
    connector = PostgresConnector()
    here = endpoint(**HOST, schema="views")

    def path(**resource: Any) -> tuple[str, ...]:
        return connector.table_path(here, read_config(PostgresResource, resource, "resource"))

    assert path(table="orders") == ("views", "orders")
    assert path(table="orders", schema="other") == ("other", "orders")
    assert connector.checkpoints_path(here) == ("views", "headrace_checkpoints")
    assert path(table="\u00fc" * 31) == ("views", "\u00fc" * 31)
    with pytest.raises(ConfigError, match=r"key 'table': .* has 64 bytes"):
        path(table="\u00fc" * 32)


def test_the_schema_of_the_configuration_marks_secrets() -> None:
    answer = PostgresConnector().spec(Spec())
    properties = answer.endpoint_schema["properties"]
    for secret in ("url", "password"):
        assert properties[secret]["format"] == "password"
        assert properties[secret]["writeOnly"] is True
    assert "schema" in properties
    assert "schema_name" not in properties
    assert set(answer.resource_schema["properties"]) == {"table", "schema", "delta_updates"}
