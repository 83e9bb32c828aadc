"""Materializes into an SQLite database; the database is authoritative."""

from headrace.connectors.sqlite.connector import SqliteConnector

__all__ = ["SqliteConnector"]
