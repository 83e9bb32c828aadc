"""A password is shown to nobody."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.connectors.config import read_config
from headrace.connectors.postgres import PostgresConnector
from headrace.connectors.postgres.config import PostgresEndpoint
from headrace.connectors.postgres.urls import parse_url
from headrace.errors import HeadraceError
from headrace.model.materializations import Materialization
from headrace.protocol.messages import Apply, Spec, Validate
from tests.connectors.postgres.driving import CLIENT, apply, planned, things, write

SECRET = "hunter2"


def everything_said(action: Callable[[], Any]) -> str:
    """The error that an action ends with, with its causes and as another process would get it."""
    with pytest.raises(HeadraceError) as caught:
        action()
    error = caught.value
    return "".join([*traceback.format_exception(error), str(error), repr(error), error.to_json()])


def validate(**config: Any) -> None:
    CLIENT.validate(Validate("view", "postgres", config, ()))


@pytest.mark.parametrize(
    "config",
    [
        {"url": f"postgresql://me:{SECRET}@db/shop"},
        {"url": "postgresql://db/shop", "password": SECRET},
        {"host": "db", "database": "shop", "user": "me", "password": SECRET},
    ],
)
def test_a_configuration_hides_it(config: dict[str, Any]) -> None:
    endpoint = read_config(PostgresEndpoint, config, "endpoint")
    assert SECRET not in f"{endpoint} {endpoint!r} {endpoint.model_dump()} {endpoint.model_dump_json()}"
    assert SECRET not in repr(parse_url(f"postgresql://me:{SECRET}@db/shop?password={SECRET}"))


def test_errors_of_connecting_hide_it(postgres_url: str) -> None:
    scheme, _, rest = postgres_url.partition("://")
    user, _, password_and_address = rest.partition(":")
    password, _, address = password_and_address.partition("@")
    wrong = f"{scheme}://{user}:{SECRET}@{address}"
    assert "authentication failed" in (said := everything_said(lambda: validate(url=wrong)))
    assert SECRET not in said
    said = everything_said(lambda: validate(url=wrong, password=f"{SECRET}2"))
    assert SECRET not in said
    said = everything_said(lambda: validate(url=f"{postgres_url}_nowhere"))
    assert "does not exist" in said
    assert password not in said
    nobody = f"postgresql://me:{SECRET}@127.0.0.1:1/shop"
    assert "refused" in (said := everything_said(lambda: validate(url=nobody)))
    assert SECRET not in said


def test_errors_of_the_configuration_hide_it() -> None:
    for wrong in (
        {"url": f"postgresql://me:{SECRET}/@db/shop"},
        {"url": f"postgresql://me:{SECRET}@db/shop", "host": "db"},
        {"host": "db", "password": SECRET},
        {"host": "db", "database": "shop", "user": "me", "password": [SECRET]},
        {"host": "db", "database": "shop", "user": "me", "password": f"{SECRET}\0"},
        {"host": "db", "database": "shop", "user": "me", "password": f"{SECRET}\ud800"},
        {"host": "db", "database": "shop", "user": "me", "pasword": SECRET},
    ):
        assert SECRET not in everything_said(lambda wrong=wrong: validate(**wrong))  # type: ignore[misc]


# libpq repeats what it cannot read of a URL, so the characters that mean something in one matter.
@given(st.text("@:/?#%[]&=, \\'\"+a0\u00fc", max_size=6), st.text("@:/?#%[]&=, \\'\"+a0\u00fc", max_size=6))
def test_no_spelling_of_a_url_shows_it(before: str, after: str) -> None:
    url = f"postgresql://me:{before}{SECRET}{after}@127.0.0.1:1/shop"
    assert SECRET not in everything_said(lambda: validate(url=url))


def test_what_the_connector_says_and_logs_hides_it(
    postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    password = postgres_url.partition("@")[0].rpartition(":")[2]
    caplog.set_level(logging.DEBUG)
    collection = things()
    said = apply(postgres_url, collection)
    write(postgres_url, collection, {"id": 1})
    materialization: Materialization = planned(postgres_url, collection)
    assert password not in said + repr(materialization) + caplog.text
    assert password not in CLIENT.apply(Apply(materialization, "1", dry_run=True)).action_description
    answer = PostgresConnector().spec(Spec({"url": postgres_url}))
    assert password not in orjson.dumps([answer.endpoint_schema, answer.resource_schema]).decode()
