"""Finds connectors by name, ours and those of other packages alike.

A package adds one with an entry point in the group `headrace.connectors`.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from headrace.errors import ConfigError
from headrace.protocol.connector import Connector

GROUP = "headrace.connectors"


def connector_names() -> list[str]:
    return sorted(entry_points(group=GROUP).names)


def find_connector(name: str) -> Connector:
    """A connector of this name, ready to serve."""
    found = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise ConfigError(f"there is no connector {name!r}; there are {', '.join(connector_names())}")
    kind = _load(found[0])
    if not (isinstance(kind, type) and issubclass(kind, Connector)):
        raise ConfigError(f"connector {name!r} ({found[0].value}) is not a subclass of Connector")
    return kind()


def _load(entry: EntryPoint) -> object:
    try:
        return entry.load()
    except ImportError as error:
        package = entry.dist.name if entry.dist else "headrace"
        raise ConfigError(
            f"connector {entry.name!r} of {package} cannot be imported: {error}; if a package is missing, "
            f"try 'pip install {package}[{entry.name}]'"
        ) from error
