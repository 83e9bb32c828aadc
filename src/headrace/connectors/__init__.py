"""Connectors, one package per kind of endpoint, found by entry point."""

from headrace.connectors.registry import connector_names, find_connector

__all__ = ["connector_names", "find_connector"]
