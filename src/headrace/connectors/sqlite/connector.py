"""The SQLite connector."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from headrace.connectors.config import ConnectorConfig
from headrace.connectors.sql.connector import SqlConnector, SqlResource
from headrace.connectors.sql.fence import CHECKPOINTS_TABLE
from headrace.connectors.sqlite.database import SqliteDatabase
from headrace.connectors.sqlite.dialect import SqliteDialect


class SqliteEndpoint(ConnectorConfig):
    path: str = Field(
        min_length=1, description="Where the database is; created if it is not there. Its folder must exist."
    )

    @field_validator("path")
    @classmethod
    def _is_a_file(cls, path: str) -> str:
        if path.startswith(":memory:") or Path(path).is_dir():
            raise PydanticCustomError("path", "it must be a file, which outlives a connection")
        return path


class SqliteConnector(SqlConnector[SqliteEndpoint, SqlResource]):
    """Maintains views in an SQLite database."""

    endpoint_config = SqliteEndpoint
    resource_config = SqlResource
    dialect = SqliteDialect()
    documentation_url = "https://github.com/headrace/headrace/blob/main/docs/connectors/sqlite.md"

    def connect(self, endpoint: SqliteEndpoint) -> SqliteDatabase:
        return SqliteDatabase(endpoint.path)

    def look(self, endpoint: SqliteEndpoint) -> SqliteDatabase:
        return SqliteDatabase(endpoint.path, look_only=True)

    def table_path(self, endpoint: SqliteEndpoint, resource: SqlResource) -> tuple[str, ...]:  # noqa: ARG002
        # Named in full, since SQLite would otherwise look among our staging tables first.
        return ("main", resource.table)

    def checkpoints_path(self, endpoint: SqliteEndpoint) -> tuple[str, ...]:  # noqa: ARG002
        return ("main", CHECKPOINTS_TABLE)
