"""The connector's page says what the connector does."""

from __future__ import annotations

import json
import re
from pathlib import Path

from headrace.connectors.config import read_config
from headrace.connectors.files.config import FilesEndpoint, FilesResource
from headrace.connectors.files.encoding import ROW_GROUP_BYTES
from headrace.connectors.files.leftovers import LEFT_ALONE
from headrace.model.field_types import Kind

PAGE = (Path(__file__).parents[3] / "docs/connectors/files.md").read_text()


def section(title: str) -> str:
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def test_its_configurations_are_read() -> None:
    bucket, folder, resource = map(json.loads, re.findall(r"^```json\n(.*?)^```$", PAGE, re.M | re.S))
    for endpoint in (bucket, folder):
        read_config(FilesEndpoint, endpoint, "endpoint")
    read_config(FilesResource, resource, "resource")


def test_every_key_is_listed() -> None:
    listed = set(re.findall(r"^\| `(\w+)` \|", section("Configuration"), re.M))
    keys = FilesEndpoint.model_json_schema()["properties"].keys()
    assert listed == keys | FilesResource.model_json_schema()["properties"].keys()


def test_every_type_is_listed() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", section("Types"), re.M)
    listed = {name for row in rows for name in row.replace("(p,s)", "").split(", ")}
    assert {str(kind) for kind in Kind if kind is not Kind.JSON} <= listed


def test_its_numbers_are_the_codes() -> None:
    assert f"{ROW_GROUP_BYTES >> 20} MiB of rows" in PAGE
    assert LEFT_ALONE.days == 1
    assert "older than a day" in section("Leftovers")
