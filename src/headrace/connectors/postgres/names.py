"""Checks which names PostgreSQL accepts for a schema, table or column."""

from __future__ import annotations

MOST_BYTES = 63  # NAMEDATALEN - 1; what is longer is cut off without an error
SYSTEM_COLUMNS = {"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"}


def name_problem(name: str) -> str | None:
    """Returns why nothing can have this name; empty if it is valid."""
    if not name or "\0" in name:
        return f"{name!r} cannot be a name in PostgreSQL"
    length = len(name.encode())
    if length > MOST_BYTES:
        return f"{name!r} has {length} bytes, and a name in PostgreSQL has at most {MOST_BYTES}"
    return None


def column_name_problem(name: str) -> str | None:
    """Returns why no column can have this name; empty if it is valid."""
    if name in SYSTEM_COLUMNS:
        return f"{name!r} is the name of a column that every table of PostgreSQL has for itself"
    return name_problem(name)
