"""Which reductions can be done column by column, in place of document by document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.model.field_types import FieldType, Kind, type_of_schema
from headrace.model.json_order import extend_pointer
from headrace.model.reduction_schema import Annotation, Schema, Strategy, annotation_of

_EITHER_WINS = frozenset({Strategy.FIRST_WRITE_WINS, Strategy.LAST_WRITE_WINS})


@dataclass(frozen=True)
class Member:
    """A property at the root of a collection's schema, which is a column of its frame."""

    name: str
    type: FieldType
    annotation: Annotation
    bare_decimal: bool
    """Whether it is a `decimal` without limits, whose sums are not bound by its column's type."""

    @property
    def pointer(self) -> str:
        return extend_pointer("", self.name)

    @property
    def strategy(self) -> Strategy:
        return self.annotation.strategy

    @property
    def by_column(self) -> bool:
        """Whether the values of a column say all that its reduction needs to know."""
        if self.annotation.key is not None:
            return False
        match self.strategy:
            case Strategy.FIRST_WRITE_WINS | Strategy.LAST_WRITE_WINS:
                return True
            case Strategy.MINIMIZE | Strategy.MAXIMIZE:
                return self.type.kind is not Kind.JSON
            case Strategy.SUM:
                return self.type.kind in (Kind.INTEGER, Kind.NUMBER, Kind.DECIMAL) and not self.bare_decimal
            case Strategy.APPEND:
                return self.type.kind is Kind.JSON
        # `merge` of a member's own members, and `set`, look inside of JSON text, where null is a value.
        return False


@dataclass(frozen=True)
class Plan:
    """A root that is taken as a whole, or merged of members that all reduce by column."""

    root: Strategy
    members: tuple[Member, ...]


def members_of(schema: Schema) -> tuple[Member, ...]:
    """The properties at the root, in their order."""
    properties = schema.get("properties", {})
    return tuple(_member(name, below) for name, below in properties.items())


def plan_of(schema: Schema) -> Plan | None:
    """How to reduce documents by column; None where only the reference can."""
    annotation = annotation_of(schema, "")
    members = members_of(schema)
    if annotation.strategy in _EITHER_WINS:
        return Plan(annotation.strategy, members)
    merges = annotation.strategy is Strategy.MERGE and annotation.key is None
    if merges and all(member.by_column for member in members):
        return Plan(Strategy.MERGE, members)
    return None


def _member(name: str, schema: object) -> Member:
    field_type, _ = type_of_schema(schema)
    # A schema may also be `true` or `false`, which annotate nothing.
    known = schema if isinstance(schema, Mapping) else {}
    annotation = annotation_of(known, extend_pointer("", name))
    bare = field_type.kind is Kind.DECIMAL and known.get("format") == Kind.DECIMAL
    return Member(name, field_type, annotation, bare)
