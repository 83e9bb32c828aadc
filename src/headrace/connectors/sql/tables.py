"""Tables as an endpoint has them and as a binding needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import EndpointError
from headrace.model.field_types import FieldType, Kind
from headrace.model.materializations import Binding
from headrace.model.ownership import Owner


@dataclass(frozen=True)
class Column:
    """A column of a table that exists."""

    name: str
    declared: str
    """The type as the endpoint spells it."""
    nullable: bool


@dataclass(frozen=True)
class Table:
    """A table that exists."""

    columns: Mapping[str, Column]
    primary_key: tuple[str, ...]
    folded: tuple[str, ...] = ()
    """Columns of the key that treat different values as equal, by their collation."""
    owner: Owner | None = None
    """The owner, as `Dialect.mark` records it."""
    can_be_marked: bool = True
    """Whether this user may change the ownership mark."""
    comment: str = ""
    """The users' own comment, if the endpoint keeps it together with our mark."""


@dataclass(frozen=True)
class WantedColumn:
    name: str
    type: FieldType
    nullable: bool
    what: str
    """Names the column in words, for reasons and refusals."""


@dataclass(frozen=True)
class WantedTable:
    """The table that a binding needs."""

    path: tuple[str, ...]
    columns: tuple[WantedColumn, ...]
    primary_key: tuple[str, ...]
    """Empty for delta updates, which append."""


def wanted_table(binding: Binding) -> WantedTable:
    if binding.document is None and binding.is_loaded:
        raise EndpointError(
            f"binding {binding} stores no document, and its reductions need it to be loaded again: "
            "store it, or take delta updates"
        )
    columns = [WantedColumn(field.name, field.type, nullable=False, what="key") for field in binding.keys]
    columns += [
        WantedColumn(field.name, field.type, nullable=not field.required, what="field")
        for field in binding.values
    ]
    if binding.document is not None:
        columns.append(WantedColumn(binding.document, FieldType(Kind.JSON), nullable=False, what="document"))
    keys = () if binding.delta_updates else tuple(field.name for field in binding.keys)
    return WantedTable(binding.resource_path, tuple(columns), keys)
