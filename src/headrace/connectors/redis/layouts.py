"""What is under each prefix: Redis has no schema to ask, so the connector keeps a record of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from headrace.connectors.redis.config import OWN_PREFIX, RedisResource
from headrace.connectors.redis.session import Session
from headrace.connectors.redis.texts import SEPARATOR
from headrace.errors import ConfigError, EndpointError
from headrace.model.collections import Field
from headrace.model.field_types import FieldType
from headrace.model.materializations import Binding

LAYOUTS_KEY = f"{OWN_PREFIX}:layouts"
"""A hash: the layout of each prefix, as JSON."""


@dataclass(frozen=True)
class Layout:
    """What a binding keeps under its prefix, or in its stream."""

    materialization: str
    format: str
    delta_updates: bool
    keys: tuple[tuple[str, FieldType], ...]
    fields: Mapping[str, FieldType]
    """Of hashes and entries of a stream, beside the key's; also those that are stored no more."""

    @property
    def kind(self) -> str:
        """In words, for reasons and refusals."""
        if self.delta_updates:
            return f"a stream of delta updates in format {self.format}"
        return f"documents in format {self.format}"

    def to_json(self) -> bytes:
        return orjson.dumps(
            {
                "materialization": self.materialization,
                "format": self.format,
                "delta_updates": self.delta_updates,
                "keys": [[name, str(field_type)] for name, field_type in self.keys],
                "fields": {name: str(field_type) for name, field_type in self.fields.items()},
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
        )


def wanted_layout(materialization: str, binding: Binding, resource: RedisResource) -> Layout:
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


def check_prefixes(materialization: str, prefixes: list[str], layouts: Mapping[str, Layout]) -> None:
    """Refuses prefixes under which two bindings, of whichever materializations, could write the same key."""
    owners = {prefix: layout.materialization for prefix, layout in layouts.items()}
    for number, prefix in enumerate(prefixes):
        if owners.get(prefix, materialization) != materialization:
            raise ConfigError(
                f"prefix {prefix!r} is materialization {owners[prefix]!r}'s: give the binding another"
            )
        for other in (*prefixes[:number], *owners):
            if prefix != other and (_is_within(prefix, other) or _is_within(other, prefix)):
                raise ConfigError(
                    f"prefix {prefix!r} and prefix {other!r} of another binding lie within each other, "
                    "and their keys could be the same: give the binding another"
                )
        if prefix in prefixes[:number]:
            raise ConfigError(f"prefix {prefix!r} is another binding's too: give the binding another")


def _is_within(prefix: str, other: str) -> bool:
    return prefix.startswith(other + SEPARATOR)
