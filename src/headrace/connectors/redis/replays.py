"""The effect of a replayed transaction on a view, since delivery is at least once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.model.reduction_schema import Strategy, annotation_of

# To reduce the same documents a second time changes what these made of them, and nothing else.
_ADDS_AGAIN = (Strategy.SUM, Strategy.APPEND)
_LOOKS_INSIDE = (Strategy.MERGE, Strategy.SET)


def counted_again(schema: Any, pointer: str = "") -> Iterator[str]:
    """Yields pointers to the locations of documents in which a replayed transaction counts twice."""
    if not isinstance(schema, Mapping):
        return
    strategy = annotation_of(schema, pointer).strategy
    if strategy in _ADDS_AGAIN:
        yield pointer or "/"
    elif strategy in _LOOKS_INSIDE:
        for name, child in schema.get("properties", {}).items():
            yield from counted_again(child, f"{pointer}/{name}")
        for keyword in ("additionalProperties", "items", "prefixItems"):
            children = schema.get(keyword)
            for child in children if isinstance(children, list) else [children]:
                yield from counted_again(child, f"{pointer}/*")
