"""A PostgreSQL database under test, read with plain SQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import orjson
from adbc_driver_postgresql import dbapi

from headrace.connectors.postgres import PostgresConnector
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding
from headrace.testing.endpoint import EndpointUnderTest

# As text, so that the comparison does not depend on how the driver reads a type.
READ: dict[Kind, Callable[[str], Any]] = {
    Kind.BOOLEAN: lambda text: text == "true",
    Kind.INTEGER: int,
    Kind.NUMBER: float,
    Kind.STRING: str,
    Kind.DATE: date.fromisoformat,
    Kind.DATE_TIME: datetime.fromisoformat,
    Kind.DECIMAL: Decimal,
    Kind.JSON: orjson.loads,
}


class PostgresEndpointUnderTest(EndpointUnderTest):
    def __init__(self, url: str) -> None:
        self.connector = PostgresConnector()
        self.endpoint_type = "postgres"
        self.url = url
        self.config = {"url": url}

    def resource(self, name: str, delta_updates: bool = False) -> Mapping[str, Any]:
        return {"table": name, "delta_updates": delta_updates}

    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        kinds = {field.name: field.type.kind for field in (*binding.keys, *binding.values)}
        if binding.document:
            kinds[binding.document] = Kind.JSON
        names = ", ".join(f"{_quoted(name)}::text" for name in kinds)
        path = ".".join(_quoted(part) for part in binding.resource_path)
        with dbapi.connect(self.url) as connection, connection.cursor() as cursor:
            cursor.execute("SET timezone = 'UTC'")
            cursor.execute(f"SELECT {names} FROM {path}")
            rows = cursor.fetchall()
        return [
            {
                name: None if value is None else READ[kind](value)
                for (name, kind), value in zip(kinds.items(), row, strict=True)
            }
            for row in rows
        ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
