"""The connector's page says what the connector does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from headrace.connectors.config import read_config
from headrace.connectors.postgres.config import PostgresEndpoint, PostgresResource
from headrace.connectors.postgres.dialect import PostgresDialect
from headrace.connectors.postgres.names import SYSTEM_COLUMNS
from headrace.model.field_types import FieldType, Kind
from tests.connectors.postgres.driving import apply, ask, run, things, write

PAGE = (Path(__file__).parents[3] / "docs/connectors/postgres.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_its_configurations_are_read() -> None:
    by_url, by_host, resource = map(json.loads, blocks("json"))
    for endpoint in (by_url, by_host):
        read_config(PostgresEndpoint, endpoint, "endpoint")
    read_config(PostgresResource, resource, "resource")


def test_every_key_is_listed() -> None:
    listed = set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", section("Configuration"), re.M)))
    )
    keys = PostgresEndpoint.model_json_schema()["properties"].keys()
    assert listed == keys | PostgresResource.model_json_schema()["properties"].keys()


def test_every_type_is_listed() -> None:
    types = [FieldType(kind) for kind in Kind if kind is not Kind.DECIMAL]
    declared = {PostgresDialect().column_type(field_type) for field_type in types} | {"NUMERIC(p,s)"}
    rows = re.findall(r"^\| [^|]+ \| `([^`]+)` \|", section("Types"), re.MULTILINE)
    assert set(rows) == declared
    assert all(f"`{name}`" in section("Limits") for name in SYSTEM_COLUMNS)


def test_its_privileges_are_enough(postgres_url: str) -> None:
    owner, writer = blocks("sql")
    database = ask(postgres_url, "SELECT current_database()::text")[0][0]
    address = postgres_url.partition("@")[2]

    def grant(role: str, block: str) -> str:
        run(postgres_url, f"CREATE ROLE {role} LOGIN PASSWORD 'p'")
        here = (
            re.sub(r"\bshop\b", database, block)
            .replace("TO headrace", f"TO {role}")
            .replace("orders", "things")
        )
        run(postgres_url, *filter(None, map(str.strip, here.split(";"))))
        return f"postgresql://{role}:p@{address}"

    run(postgres_url, f"REVOKE ALL ON DATABASE {database} FROM PUBLIC")
    collection = things(note={"type": "string"})
    try:
        url = grant("owner", owner)
        apply(url, things())
        apply(url, collection)
        write(url, collection, {"id": 1})
        url = grant("writer", owner.replace("USAGE, CREATE", "USAGE") + writer)
        assert apply(url, collection) == ""
        assert write(url, collection, {"id": 1}, {"id": 2}, n=2) == 1
    finally:
        for role in ("owner", "writer"):
            run(postgres_url, f"DROP OWNED BY {role}", f"DROP ROLE {role}")
