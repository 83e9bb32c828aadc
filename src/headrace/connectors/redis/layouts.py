"""What is under each prefix: Redis has no schema to ask, so the connector keeps a record of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from headrace.connectors.redis.config import OWN_PREFIX, RedisResource
from headrace.connectors.redis.session import Command, Session
from headrace.connectors.redis.texts import SEPARATOR
from headrace.errors import ConfigError, EndpointError
from headrace.model.collections import Field
from headrace.model.field_types import FieldType
from headrace.model.materializations import Binding
from headrace.model.ownership import Mode, Owner, Target

LAYOUTS_KEY = f"{OWN_PREFIX}:layouts"
"""A hash: the layout of each prefix, as JSON."""
STORED_KEY = f"{OWN_PREFIX}:stored"
"""A hash: has a field for each prefix that rows were stored under since its layout was recorded."""


@dataclass(frozen=True)
class Layout:
    """What a binding keeps under its prefix, or in its stream."""

    materialization: str
    format: str
    delta_updates: bool
    keys: tuple[tuple[str, FieldType], ...]
    fields: Mapping[str, FieldType]
    """Of hashes and entries of a stream, beside the key's; also those that are stored no more."""
    lineage: str | None = ""
    """Of the materialization; empty if it never told one, None if a version before lineages recorded this."""

    @property
    def kind(self) -> str:
        """In words, for reasons and refusals."""
        if self.delta_updates:
            return f"a stream of delta updates in format {self.format}"
        return f"documents in format {self.format}"

    @property
    def owner(self) -> Owner:
        mode = Mode.APPEND if self.delta_updates else Mode.VIEW
        return Owner(self.materialization, self.lineage or "", tuple(name for name, _ in self.keys), mode)

    def to_json(self) -> bytes:
        lineage = {} if self.lineage is None else {"lineage": self.lineage}
        return orjson.dumps(
            {
                "materialization": self.materialization,
                "format": self.format,
                "delta_updates": self.delta_updates,
                "keys": [[name, str(field_type)] for name, field_type in self.keys],
                "fields": {name: str(field_type) for name, field_type in self.fields.items()},
                **lineage,
            }
        )

    @staticmethod
    def from_json(text: bytes) -> Layout:
        raw = orjson.loads(text)
        return Layout(
            raw["materialization"],
            raw["format"],
            raw["delta_updates"],
            tuple((name, FieldType.parse(field_type)) for name, field_type in raw["keys"]),
            {name: FieldType.parse(field_type) for name, field_type in raw["fields"].items()},
            raw.get("lineage"),
        )


def wanted_layout(materialization: str, lineage: str, binding: Binding, resource: RedisResource) -> Layout:
    """The layout that a binding needs."""
    if binding.document is None and not (binding.delta_updates and resource.format == "hash"):
        raise EndpointError(
            f"binding {binding} stores no document, and only a stream in format hash can do without: store it"
        )
    fields = binding.values if resource.format == "hash" else ()
    return Layout(
        materialization,
        resource.format,
        binding.delta_updates,
        key_types(binding.keys),
        {field.name: field.type for field in fields},
        lineage,
    )


def key_types(fields: tuple[Field, ...]) -> tuple[tuple[str, FieldType], ...]:
    return tuple((field.name, field.type) for field in fields)


def read_layouts(session: Session) -> dict[str, Layout]:
    """The layouts of all prefixes, of other materializations too."""
    entries = session.call("HGETALL", LAYOUTS_KEY)
    return {
        prefix.decode(): Layout.from_json(layout)
        for prefix, layout in zip(entries[::2], entries[1::2], strict=True)
    }


def read_stored(session: Session) -> set[str]:
    """The prefixes that rows were stored under, for all that the connector has recorded."""
    return {prefix.decode() for prefix in session.call("HGETALL", STORED_KEY)[::2]}


def record_stored(prefix: str) -> Command:
    """Goes into each transaction of Redis that stores rows, so that there are none without it."""
    return ("HSET", STORED_KEY, prefix, 1)


def target_of(materialization: str, prefix: str, layouts: Mapping[str, Layout], stored: set[str]) -> Target:
    """What a prefix holds, to a materialization that asks.

    Rows that expired or that others removed count: nothing less than a look at every key could tell. So do
    those that a version before this one may have stored without a record.
    """
    layout = layouts.get(prefix)
    if layout is None:
        return Target(exists=False)
    has_rows = prefix in stored or layout.lineage is None
    is_marked = bool(layout.lineage) or layout.materialization != materialization
    return Target(exists=True, has_rows=has_rows, owner=layout.owner if is_marked else None)


def check_prefixes(prefixes: list[str], layouts: Mapping[str, Layout]) -> None:
    """Refuses prefixes under which two bindings, of whichever materializations, could write the same key.

    Whose a prefix itself is, is another question.
    """
    for number, prefix in enumerate(prefixes):
        for other in (*prefixes[:number], *layouts):
            if prefix != other and (_is_within(prefix, other) or _is_within(other, prefix)):
                raise ConfigError(
                    f"prefix {prefix!r} and prefix {other!r} of another binding lie within each other, "
                    "and their keys could be the same: give the binding another"
                )
        if prefix in prefixes[:number]:
            raise ConfigError(f"prefix {prefix!r} is another binding's too: give the binding another")


def _is_within(prefix: str, other: str) -> bool:
    return prefix.startswith(other + SEPARATOR)
