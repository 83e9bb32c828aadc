"""The PostgreSQL connector."""

from __future__ import annotations

from headrace.connectors.postgres.config import PostgresEndpoint, PostgresResource
from headrace.connectors.postgres.connection_url import connection_url
from headrace.connectors.postgres.database import PostgresDatabase
from headrace.connectors.postgres.dialect import PostgresDialect
from headrace.connectors.sql.connector import SqlConnector
from headrace.connectors.sql.fence import CHECKPOINTS_TABLE


class PostgresConnector(SqlConnector[PostgresEndpoint, PostgresResource]):
    """Maintains views in a PostgreSQL database."""

    endpoint_config = PostgresEndpoint
    resource_config = PostgresResource
    dialect = PostgresDialect()
    documentation_url = "https://github.com/headrace/headrace/blob/main/docs/connectors/postgres.md"

    def connect(self, endpoint: PostgresEndpoint) -> PostgresDatabase:
        return PostgresDatabase(connection_url(endpoint))

    def table_path(self, endpoint: PostgresEndpoint, resource: PostgresResource) -> tuple[str, ...]:
        return (resource.schema_name or endpoint.schema_name, resource.table)

    def checkpoints_path(self, endpoint: PostgresEndpoint) -> tuple[str, ...]:
        return (endpoint.schema_name, CHECKPOINTS_TABLE)
