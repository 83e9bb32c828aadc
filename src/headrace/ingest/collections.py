"""The collections of a server: their schemas, and how a write's schema changes them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import pyarrow as pa

from headrace.errors import ConfigError, SchemaError
from headrace.ingest.schemas import MOST_SCHEMA_BYTES, collection_schema, evolve, storable
from headrace.model.collections import Collection
from headrace.wal.state import CollectionState

# JSON libraries write less deeply nested values than they read, and answers add levels around a schema.
_MOST_LEVELS = 100
# Names that every catalog and every shell takes without quoting.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,126}")


@dataclass(frozen=True)
class Admission:
    """How batches of a schema are kept in a collection."""

    kept: bytes
    """The schema under which the log keeps them, as an Arrow IPC message."""
    required: list[int]
    """The columns of it that may have no nulls."""


class Collections:
    """Changes one collection at a time; a change is in the log, synced, before anybody sees it."""

    def __init__(self, known: dict[str, CollectionState], declare: Callable[[CollectionState], None]) -> None:
        self._known = dict(known)
        self._schemas = {name: read_schema(state.schema) for name, state in known.items()}
        self._declare = declare
        self._lock = Lock()

    def names(self) -> list[str]:
        return sorted(self._known)

    def get(self, name: str) -> CollectionState:
        try:
            return self._known[name]
        except KeyError:
            raise ConfigError(f"there is no collection {name!r}: create it, or write to it") from None

    def schema(self, name: str) -> pa.Schema:
        self.get(name)
        return self._schemas[name]

    def create(self, name: str, schema: pa.Schema) -> CollectionState:
        """By an Arrow schema, without a key."""
        check_name(name)
        return self._create(CollectionState(name, b""), storable(name, schema))

    def create_keyed(self, name: str, key: tuple[str, ...], json_schema: dict[str, Any]) -> CollectionState:
        check_name(name)
        _check_json_schema(name, key, json_schema)
        collection = Collection(name, key, json_schema)
        schema = storable(name, collection_schema(collection))
        return self._create(CollectionState(name, b"", key, json_schema), schema)

    def admit(self, name: str, incoming: pa.Schema) -> Admission:
        """A stream of this schema may write; the collection is created or made wider if it has to be."""
        check_name(name)
        with self._lock:
            self._refuse_look_alike(name)
            current = self._schemas.get(name)
            kept = storable(name, incoming, current)
            wider = kept if current is None else evolve(name, current, kept)
            if current is None or wider is not current:
                self._change(replace(self._known.get(name) or CollectionState(name, b""), schema=b""), wider)
        required = [kept.get_field_index(field.name) for field in wider if not field.nullable]
        return Admission(write_schema(kept), required)

    def _create(self, state: CollectionState, schema: pa.Schema) -> CollectionState:
        with self._lock:
            known = self._known.get(state.name)
            if known is None:
                self._refuse_look_alike(state.name)
                return self._change(state, schema)
            same_key = (known.key, known.json_schema) == (state.key, state.json_schema)
            if same_key and self._schemas[state.name].equals(schema):
                return known
        raise SchemaError(f"collection {state.name!r} exists with another schema or key: choose another name")

    def _refuse_look_alike(self, name: str) -> None:
        """Catalogs that fold names would have one table for both, whose watermark says nothing of either."""
        if name not in self._known:
            for other in self._known:
                if other.casefold() == name.casefold():
                    raise SchemaError(
                        f"collection {name!r} differs from {other!r} in case only, and some catalogs cannot "
                        "tell them apart: choose another name"
                    )

    def _change(self, state: CollectionState, schema: pa.Schema) -> CollectionState:
        state = replace(state, schema=write_schema(schema))
        self._declare(state)
        self._schemas[state.name] = schema
        self._known[state.name] = state
        return state


def _check_json_schema(name: str, key: tuple[str, ...], json_schema: dict[str, Any]) -> None:
    """Refuses one that could be read and not be written down again, or that is too large to be kept."""
    if _is_deeper(json_schema, _MOST_LEVELS):
        raise SchemaError(
            f"collection {name!r}: the JSON schema is nested more than {_MOST_LEVELS} levels deep: flatten it"
        )
    size = len(CollectionState(name, b"", key, json_schema).encode())
    if size > MOST_SCHEMA_BYTES:
        raise SchemaError(
            f"collection {name!r}: the JSON schema has {size:,} bytes and may have {MOST_SCHEMA_BYTES:,}"
        )


def _is_deeper(value: Any, levels: int) -> bool:
    """Level by level, since a function that calls itself has a limit of its own."""
    inner = [value]
    while levels and inner:
        inner = [
            part
            for one in inner
            for part in (one.values() if isinstance(one, dict) else one)
            if isinstance(part, dict | list)
        ]
        levels -= 1
    return bool(inner)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"{name!r} is not a name of a collection: letters, digits and underscores, at most 127, "
            "and no digit first"
        )


def read_schema(data: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(data))


def write_schema(schema: pa.Schema) -> bytes:
    data: bytes = schema.serialize().to_pybytes()
    return data
