"""Materializes into a PostgreSQL database; the database is authoritative."""

from headrace.connectors.postgres.connector import PostgresConnector

__all__ = ["PostgresConnector"]
