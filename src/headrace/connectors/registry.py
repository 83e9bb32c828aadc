"""Finds connectors by name, ours and those of other packages alike.

A package adds one with an entry point in the group `headrace.connectors`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from headrace.errors import ConfigError
from headrace.protocol.connector import Connector

GROUP = "headrace.connectors"


def connector_names() -> list[str]:
    return sorted(entry_points(group=GROUP).names)


def find_connector(name: str) -> Connector:
    """Returns a connector with this name, ready to serve."""
    connector: Connector = find_class(GROUP, "connector", name, Connector)()
    return connector


def find_class(group: str, what: str, name: str, kind: type[Any]) -> Any:
    """Returns the class that an entry point with this name refers to; `what` names its kind in messages."""
    entries = _entries(group)
    if name not in entries.names:  # it may have been installed since
        _entries.cache_clear()
        entries = _entries(group)
    found = [entry for entry in entries if entry.name == name]
    if not found:
        raise ConfigError(f"there is no {what} {name!r}; there are {', '.join(sorted(entries.names))}")
    loaded = _load(found[0], what)
    if not (isinstance(loaded, type) and issubclass(loaded, kind)):
        raise ConfigError(f"{what} {name!r} ({found[0].value}) is not a subclass of {kind.__name__}")
    return loaded


@cache
def _entries(group: str) -> EntryPoints:
    """Cached, because the lookup reads a file of each installed package, and tasks are short."""
    return entry_points(group=group)


def _load(entry: EntryPoint, what: str) -> object:
    try:
        return entry.load()
    except ImportError as error:
        package = entry.dist.name if entry.dist else "headrace"
        raise ConfigError(
            f"{what} {entry.name!r} of {package} cannot be imported: {error}; if a package is missing, "
            f"try 'pip install {package}[{entry.name}]'"
        ) from error
