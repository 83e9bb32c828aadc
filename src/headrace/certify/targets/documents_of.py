"""Documents from rows, as endpoints have them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from headrace.certify.documents import SCHEMA, Document
from headrace.certify.targets.target import Rows

EPOCH, DOCUMENT = "_epoch", "_document"


def viewed(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """By the column that has the whole of it."""
    return Rows([parsed(row[DOCUMENT]) for row in rows])


def appended(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """By the columns, in the order of the epochs if one tells them."""
    return in_order(sorted(rows, key=lambda row: row.get(EPOCH, 0)))


def in_order(rows: Iterable[Mapping[str, Any]]) -> Rows:
    """By the columns, where rows have an order of their own."""
    return Rows([_of_columns(row) for row in rows], is_view=False)


def parsed(text: str | bytes) -> Document:
    document: Document = orjson.loads(text)
    return document


def _of_columns(row: Mapping[str, Any]) -> Document:
    document = {name: row[name] for name in SCHEMA["properties"] if row.get(name) is not None}
    if isinstance(seen := document.get("seen"), str | bytes):
        document["seen"] = orjson.loads(seen)
    return document
