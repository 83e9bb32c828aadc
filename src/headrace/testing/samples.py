"""Collections and documents that the conformance suite materializes."""

from __future__ import annotations

import itertools
import random
from typing import Any

from headrace.model.collections import Collection

ORDERS = Collection(
    "orders",
    ("/customer", "/day"),
    {
        "type": "object",
        "required": ["customer", "day"],
        "reduce": {"strategy": "merge"},
        "properties": {
            "customer": {"type": "string"},
            "day": {"type": "string", "format": "date"},
            "count": {"type": "integer", "reduce": {"strategy": "sum"}},
            "total": {"type": "string", "format": "decimal(18,2)", "reduce": {"strategy": "sum"}},
            "largest": {"type": "integer", "reduce": {"strategy": "maximize"}},
            "first": {"type": "string", "reduce": {"strategy": "firstWriteWins"}},
            "note": {"type": ["string", "null"]},
            "lines": {"type": "array", "items": {"type": "integer"}, "reduce": {"strategy": "append"}},
        },
    },
)
"""Has a composite key and every kind of reduction that shows if a document is applied twice, or not at
all."""

LAST_SEEN = Collection(
    "last seen",
    ("/id",),
    {
        "type": "object",
        "required": ["id"],
        "properties": {"id": {"type": "integer"}, "place": {"type": "string"}},
    },
)
"""Last write wins at the root, so that loads are unnecessary."""

ALL_TYPES = Collection(
    "all types",
    ("/id",),
    {
        "type": "object",
        "required": ["id", "always"],
        "properties": {
            "id": {"type": "string"},
            "always": {"type": "integer"},
            "boolean": {"type": "boolean"},
            "integer": {"type": "integer"},
            "number": {"type": "number"},
            "string": {"type": "string"},
            "date": {"type": "string", "format": "date"},
            "instant": {"type": "string", "format": "date-time"},
            "decimal": {"type": "string", "format": "decimal(38,9)"},
            "object": {"type": "object"},
            "array": {"type": "array"},
        },
    },
)

ALL_TYPES_DOCUMENTS: list[dict[str, Any]] = [
    {
        "id": "usual",
        "always": 1,
        "boolean": True,
        "integer": 42,
        "number": 1.5,
        "string": "text",
        "date": "2026-11-15",
        "instant": "2026-11-15T08:30:00.123456+02:00",
        "decimal": "12.500000000",
        "object": {"b": [1, None], "a": "x"},
        "array": [1, "two", {"three": 3}],
    },
    {"id": "only the required", "always": 2},
    {
        "id": "extremes",
        "always": -(2**63),
        "boolean": False,
        "integer": 2**63 - 1,
        "number": -1.7976931348623157e308,
        "string": "quote ' \" \\ newline \n tab \t snowman \u2603 emoji \U0001f600",
        "date": "0001-01-01",
        "instant": "9999-12-31T23:59:59.999999Z",
        "decimal": "-99999999999999999999999999999.999999999",
        "object": {},
        "array": [],
    },
    {
        "id": "",
        "always": 0,
        "number": 5e-324,
        "string": "",
        "date": "9999-12-31",
        "instant": "1969-12-31T23:59:59.000001Z",
        "decimal": "0.000000001",
    },
]

KEY_TYPES = Collection(
    "key types",
    ("/text", "/number", "/flag", "/day", "/instant", "/amount"),
    {
        "type": "object",
        "required": ["text", "number", "flag", "day", "instant", "amount"],
        "reduce": {"strategy": "merge"},
        "properties": {
            "text": {"type": "string"},
            "number": {"type": "integer"},
            "flag": {"type": "boolean"},
            "day": {"type": "string", "format": "date"},
            "instant": {"type": "string", "format": "date-time"},
            "amount": {"type": "string", "format": "decimal(10,2)"},
            "seen": {"type": "integer", "reduce": {"strategy": "sum"}},
        },
    },
)
"""Has every type that can be a key."""


def key_types_documents() -> list[dict[str, Any]]:
    names = ("text", "number", "flag", "day", "instant", "amount")
    values = itertools.product(
        ("", "it's", "\u2603"),
        (0, -(2**63), 2**63 - 1),
        (True, False),
        ("0001-01-01", "2026-11-15"),
        ("2026-11-15T00:00:00Z", "1900-01-01T00:00:00.500000Z"),
        ("0.00", "-12345678.90"),
    )
    return [{**dict(zip(names, key, strict=True)), "seen": 1} for key in values]


AWKWARD_NAMES = Collection(
    'a "quoted" collection; --',
    ("/select", "/nested/key"),
    {
        "type": "object",
        "required": ["select", "nested"],
        "properties": {
            "select": {"type": "integer"},
            "nested": {"type": "object", "required": ["key"], "properties": {"key": {"type": "string"}}},
            'semi"colon; DROP TABLE x; --': {"type": "string"},
            "a b": {"type": "string"},
            "c0": {"type": "string"},
            "\u00fcber": {"type": "string"},
            "$1": {"type": "string"},
            "%s": {"type": "string"},
        },
    },
)


def orders(seed: int, count: int) -> list[dict[str, Any]]:
    """Returns random orders of a few customers on a few days, so that keys repeat within and across
    transactions."""
    draw = random.Random(seed)  # noqa: S311 - reproducible, not secret
    written: list[dict[str, Any]] = []
    for number in range(count):
        cents = draw.randrange(1, 100_000)
        written.append(
            {
                "customer": f"customer {draw.randrange(8)}",
                "day": f"2026-11-{draw.randrange(1, 4):02}",
                "count": 1,
                "total": f"{cents // 100}.{cents % 100:02}",
                "largest": cents,
                "first": f"order {seed}/{number}",
                "note": draw.choice([None, "", "urgent"]),
                "lines": [number],
            }
        )
    return written
