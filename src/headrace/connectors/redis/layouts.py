"""Layouts: the connector's own record of the contents of each prefix, because Redis has no schema."""

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
    """The contents of a binding's prefix, or of its stream."""

    materialization: str
    format: str
    delta_updates: bool
    keys: tuple[tuple[str, FieldType], ...]
    fields: Mapping[str, FieldType]
    """The fields of hashes and stream entries except for the key's, including those that are no longer
    stored."""
    lineage: str | None = ""
    """The lineage of the materialization; empty if none was recorded, None if a version before lineages
    recorded this."""

    @property
    def kind(self) -> str:
        """Describes the layout in words, for reasons and refusals."""
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
    """Returns the layout that a binding needs."""
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
    """Returns the layouts of all prefixes, including those of other materializations."""
    entries = session.call("HGETALL", LAYOUTS_KEY)
    return {
        prefix.decode(): Layout.from_json(layout)
        for prefix, layout in zip(entries[::2], entries[1::2], strict=True)
    }


def read_stored(session: Session) -> set[str]:
    """Returns the prefixes under which rows were stored, as far as the connector has recorded them."""
    return {prefix.decode() for prefix in session.call("HGETALL", STORED_KEY)[::2]}


def record_stored(prefix: str) -> Command:
    """Records the prefixes, in each transaction of Redis that stores rows, so that no row is stored without
    the record."""
    return ("HSET", STORED_KEY, prefix, 1)


def target_of(materialization: str, prefix: str, layouts: Mapping[str, Layout], stored: set[str]) -> Target:
    """Returns the state of a prefix from the view of one materialization.

    Expired and removed rows count: only a scan of every key could tell. So do rows that an earlier version
    may have stored without a record.
    """
    layout = layouts.get(prefix)
    if layout is None:
        return Target(exists=False)
    has_rows = prefix in stored or layout.lineage is None
    is_marked = bool(layout.lineage) or layout.materialization != materialization
    return Target(exists=True, has_rows=has_rows, owner=layout.owner if is_marked else None)


def check_prefixes(prefixes: list[str], layouts: Mapping[str, Layout]) -> None:
    """Refuses prefixes under which two bindings, of whichever materializations, could write the same key.

    The owner of the prefix itself is checked elsewhere.
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
