"""An SQLite database under test, read with sqlite3 alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import orjson

from headrace.connectors.sqlite import SqliteConnector
from headrace.model.field_types import Kind
from headrace.model.materializations import Binding
from headrace.testing.endpoint import EndpointUnderTest

READ: dict[Kind, Callable[[Any], Any]] = {
    Kind.BOOLEAN: bool,
    Kind.INTEGER: int,
    Kind.NUMBER: float,
    Kind.STRING: str,
    Kind.DATE: date.fromisoformat,
    Kind.DATE_TIME: datetime.fromisoformat,
    Kind.DECIMAL: Decimal,
    Kind.JSON: orjson.loads,
}


class SqliteEndpointUnderTest(EndpointUnderTest):
    def __init__(self, folder: Path) -> None:
        self.connector = SqliteConnector()
        self.endpoint_type = "sqlite"
        self.path = folder / "view.db"
        self.config = {"path": str(self.path)}

    def resource(self, name: str, delta_updates: bool = False) -> Mapping[str, Any]:
        return {"table": name, "delta_updates": delta_updates}

    def rows(self, binding: Binding) -> list[dict[str, Any]]:
        _, table = binding.resource_path
        kinds = {field.name: field.type.kind for field in (*binding.keys, *binding.values)}
        if binding.document:
            kinds[binding.document] = Kind.JSON
        names = ", ".join('"' + name.replace('"', '""') + '"' for name in kinds)
        quoted = table.replace('"', '""')
        connection = sqlite3.connect(self.path)
        try:
            rows = connection.execute(f'SELECT {names} FROM "{quoted}"').fetchall()
        finally:
            connection.close()
        return [
            {
                name: None if value is None else READ[kind](value)
                for (name, kind), value in zip(kinds.items(), row, strict=True)
            }
            for row in rows
        ]
