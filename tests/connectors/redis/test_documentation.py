"""The connector's page says what the connector does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from devtools.redis_server import RedisServer
from headrace.connectors.config import read_config
from headrace.connectors.redis import chunks, spool
from headrace.connectors.redis.config import RedisEndpoint, RedisResource
from headrace.connectors.redis.texts import redis_keys
from headrace.model.reduction_schema import Strategy
from tests.connectors.redis.driving import apply, ask, things, write

PAGE = (Path(__file__).parents[3] / "docs/connectors/redis.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_its_configurations_are_read() -> None:
    endpoint, resource = map(json.loads, blocks("json"))
    read_config(RedisEndpoint, endpoint, "endpoint")
    read_config(RedisResource, resource, "resource")


def test_every_key_is_listed() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", section("Configuration"), re.MULTILINE))
    keys = RedisEndpoint.model_json_schema()["properties"].keys()
    assert listed == keys | RedisResource.model_json_schema()["properties"].keys()


def test_every_reduction_is_listed() -> None:
    table = PAGE.partition("## Configuration")[0]
    assert all(f"`{strategy}`" in table for strategy in Strategy)


def test_its_python_spells_keys_as_the_connector_does() -> None:
    (source,) = blocks("python")
    page: dict[str, Any] = {}
    exec(source, page)
    values = ["a:b", "50%", "%3A", "", "\u2603"]
    columns = {str(number): [value] for number, value in enumerate(values)}
    (key,) = redis_keys("orders", pa.record_batch(columns))
    assert page["redis_key"]("orders", *values) == key
    assert page["values_of"]("orders", key) == values


def test_its_numbers_are_the_code_s() -> None:
    assert chunks.ROWS_AT_ONCE == 1000
    assert PAGE.count("at most 1000") == 2
    assert chunks.BYTES_AT_ONCE == 4 * 1024 * 1024
    assert PAGE.count("exceeds 4 MiB") == 2
    assert spool.BYTES_IN_MEMORY == 8 * 1024 * 1024
    assert "up to 8 MiB per binding" in PAGE


@pytest.mark.processes
@pytest.mark.parametrize("resource", [{}, {"format": "hash", "ttl": 5}, {"delta_updates": True}])
def test_its_permissions_are_enough(own_server: RedisServer, resource: dict[str, Any]) -> None:
    (command,) = blocks("text")
    ask(own_server.url, "FLUSHALL")
    ask(own_server.url, *command.replace("orders", "things").split())
    url = f"redis://headrace:password@{own_server.url.partition('@')[2]}"
    collection = things(note={"type": "string"})
    try:
        apply(url, collection, **resource)
        for _ in range(2):
            write(url, collection, {"id": 1, "note": "n"}, {"id": 2}, **resource)
    finally:
        ask(own_server.url, "ACL", "DELUSER", "headrace")
