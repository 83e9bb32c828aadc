"""Materializes into files in object storage; the recovery log is authoritative."""

from headrace.connectors.files.connector import FilesConnector

__all__ = ["FilesConnector"]
