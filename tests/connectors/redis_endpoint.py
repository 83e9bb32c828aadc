"""A Redis under test, read with the driver's own client alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from urllib.parse import unquote

import orjson
import redis

from headrace.connectors.redis import RedisConnector
from headrace.model.columns import extract
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding
from headrace.testing.endpoint import EndpointUnderTest

READ: dict[Kind, Callable[[str], Any]] = {
    Kind.BOOLEAN: {"true": True, "false": False}.__getitem__,
    Kind.INTEGER: int,
    Kind.NUMBER: float,
    Kind.STRING: str,
    Kind.DATE: date.fromisoformat,
    Kind.DATE_TIME: datetime.fromisoformat,
    Kind.DECIMAL: Decimal,
    Kind.JSON: json.loads,
}


class RedisEndpointUnderTest(EndpointUnderTest):
    keeps_checkpoints = False

    def __init__(self, url: str, text_format: str = "json") -> None:
        self.connector = RedisConnector()
        self.endpoint_type = "redis"
        self.url = url
        self.config = {"url": url}
        self.format = text_format

    def resource(self, name: str, delta_updates: bool = False) -> Mapping[str, Any]:
        return {"prefix": name, "format": self.format, "delta_updates": delta_updates}

    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        (prefix,) = binding.resource_path
        client: Any = redis.Redis.from_url(self.url, decode_responses=True)
        with closing(client):
            if binding.delta_updates:
                entries = [dict(fields) for _, fields in client.xrange(prefix)]
            else:
                keys = [key for key in client.scan_iter(count=10_000) if key.startswith(f"{prefix}:")]
                entries = [self._entry(client, key) for key in keys]
                for key, entry in zip(keys, entries, strict=True):
                    assert key == expected_key(prefix, self._row(binding, entry), binding)
        return [self._row(binding, entry) for entry in entries]

    def _entry(self, client: Any, key: str) -> dict[str, str]:
        if self.format == "hash":
            return dict(client.hgetall(key))
        return {"_document": str(client.get(key))}

    def _row(self, binding: Binding, entry: dict[str, str]) -> dict[str, Any]:
        kinds = {field.name: field.type.kind for field in (*binding.keys, *binding.values)}
        if self.format == "json":
            document = orjson.loads(entry["_document"])
            row = extract((*binding.keys, *binding.values), [document]).to_pylist()[0]
            nested = {name: document.get(name) for name, kind in kinds.items() if kind is Kind.JSON}
            return {**row, **nested, "_document": document}
        if binding.document:
            kinds[binding.document] = Kind.JSON
        assert entry.keys() <= kinds.keys()
        return {name: READ[kind](entry[name]) if name in entry else None for name, kind in kinds.items()}


def expected_key(prefix: str, row: Mapping[str, Any], binding: Binding) -> str:
    """A document's key as the documentation has it, from its values."""
    parts = [_spelled(row[field.name]) for field in binding.keys]
    joined = ":".join([prefix, *(part.replace("%", "%25").replace(":", "%3A") for part in parts)])
    assert [unquote(part) for part in joined.removeprefix(prefix + ":").split(":")] == parts
    return joined


def _spelled(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
    if isinstance(value, date):
        return value.isoformat()
    return str(value)
