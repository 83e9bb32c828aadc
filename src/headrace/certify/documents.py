"""The documents of a certification: each tells in the view that it is there, and how often."""

from __future__ import annotations

from typing import Any

from headrace.model.collections import Collection

Document = dict[str, Any]

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["key"],
    "reduce": {"strategy": "merge"},
    "properties": {
        "key": {"type": "string"},
        "count": {"type": "integer", "reduce": {"strategy": "sum"}},
        "total": {"type": "integer", "reduce": {"strategy": "sum"}},
        "largest": {"type": "integer", "reduce": {"strategy": "maximize"}},
        "last": {"type": "integer"},
        "seen": {"type": "array", "items": {"type": "integer"}, "reduce": {"strategy": "append"}},
    },
}
NAME = "events"
COLLECTION = Collection(NAME, ("/key",), SCHEMA)

LATEST_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["last"],
    "properties": {
        name: {key: value for key, value in of.items() if key != "reduce"}
        for name, of in SCHEMA["properties"].items()
    },
}
LATEST = "latest"
LATEST_COLLECTION = Collection(LATEST, ("/last",), LATEST_SCHEMA)
"""The same documents, each with a key of its own: the last write wins, so that one that comes again is as it
was. For endpoints that promise this and no more."""

COLLECTIONS = (COLLECTION, LATEST_COLLECTION)
CONFIGURED = {one.name: {"key": list(one.key), "schema": one.schema} for one in COLLECTIONS}
"""As `headrace.yaml` has them."""

BATCH = 20
"""Documents of a write; an epoch takes one."""
_KEYS = 7


def key_of(number: int) -> str:
    return f"key {number * 5 % _KEYS}"


def document(number: int) -> Document:
    """The `number`th that is written, from 1."""
    return {
        "key": key_of(number),
        "count": 1,
        "total": number,
        "largest": number,
        "last": number,
        "seen": [number],
    }


def documents(first: int, count: int) -> list[Document]:
    return [document(number) for number in range(first, first + count)]
