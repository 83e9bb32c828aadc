"""Materializations: named views of collections in one endpoint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.model.collections import DOCUMENT_FIELD, Collection, Field
from headrace.model.ownership import Mode, Owner
from headrace.model.reduction_schema import needs_load


@dataclass(frozen=True)
class Binding:
    """One collection of a materialization, with its target and the fields that are stored there."""

    collection: Collection
    resource: Mapping[str, Any]
    """The resource configuration, such as a table's name, as the user wrote it."""
    resource_path: tuple[str, ...]
    """The path of the target, as the connector returned it."""
    values: tuple[Field, ...] = ()
    """Fields that are stored in addition to the key's."""
    document: str | None = DOCUMENT_FIELD
    """The field that holds the whole document, if it is stored."""
    delta_updates: bool = False

    @property
    def keys(self) -> tuple[Field, ...]:
        return self.collection.key_fields

    @property
    def is_loaded(self) -> bool:
        """Returns whether the stored document of a key must be loaded, to be reduced with new ones."""
        return not self.delta_updates and needs_load(self.collection.schema)

    @property
    def needs_document(self) -> bool:
        """Returns whether whole documents are stored or reduced; if not, the columns suffice."""
        return self.document is not None or self.is_loaded

    @property
    def key_schema(self) -> pa.Schema:
        return arrow_schema(self.keys)

    @property
    def value_schema(self) -> pa.Schema:
        return arrow_schema(self.values)

    def owner(self, materialization: str, lineage: str) -> Owner:
        """Returns the owner that the target records once a materialization writes this binding to it."""
        mode = Mode.APPEND if self.delta_updates else Mode.VIEW
        return Owner(materialization, lineage, tuple(field.name for field in self.keys), mode)

    def __str__(self) -> str:
        return f"{self.collection.name} -> {'.'.join(self.resource_path)}"


@dataclass(frozen=True)
class Materialization:
    """A named set of bindings that share an endpoint and its transactions."""

    name: str
    endpoint_type: str
    endpoint: Mapping[str, Any]
    """The endpoint's configuration as the user wrote it; may hold secrets, so it is never logged."""
    bindings: tuple[Binding, ...]

    def __post_init__(self) -> None:
        seen: set[tuple[str, ...]] = set()
        for path in (binding.resource_path for binding in self.bindings):
            if path in seen:
                raise ConfigError(
                    f"two bindings of materialization {self.name!r} go to {'.'.join(path)}: give each its own"
                )
            seen.add(path)

    def __repr__(self) -> str:
        return f"Materialization({self.name!r}, {self.endpoint_type!r}, {len(self.bindings)} bindings)"


def arrow_schema(fields: Iterable[Field]) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type.arrow) for field in fields])
