"""Which reductions can be done column by column, in place of document by document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.model.field_types import FieldType, Kind, type_of_schema
from headrace.model.json_order import extend_pointer
from headrace.model.reduction_schema import Annotation, Schema, Strategy, annotation_of

_LAST_WINS = Annotation()
_EITHER_WINS = frozenset({Strategy.FIRST_WRITE_WINS, Strategy.LAST_WRITE_WINS})


@dataclass(frozen=True)
class Member:
    """A property of a collection's schema: at the root, where it is a column of the frame, or in a member."""

    name: str
    type: FieldType
    annotation: Annotation
    bare_decimal: bool
    """Whether it is a `decimal` without limits, whose sums are not bound by its column's type."""
    parent: str = ""
    """The pointer of the member that it is in."""
    members: tuple[Member, ...] = ()
    """If it is an object that is merged, its own."""
    others: Annotation = _LAST_WINS
    """How members are reduced that its schema does not name."""
    is_object: bool = False
    """Whether the schema says that it is an object, and nothing else but null."""

    @property
    def pointer(self) -> str:
        return extend_pointer(self.parent, self.name)

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
            case Strategy.MERGE:
                is_known = self.is_object and self.others.strategy in _EITHER_WINS
                return is_known and all(member.by_column for member in self.members)
        return False

    @property
    def is_merged(self) -> bool:
        """Whether its own members are reduced, each by its annotation."""
        return self.strategy is Strategy.MERGE


@dataclass(frozen=True)
class Plan:
    """A root that is taken as a whole, or merged of members that all reduce by column."""

    root: Strategy
    members: tuple[Member, ...]

    @property
    def merged(self) -> tuple[Member, ...]:
        """The members that are objects of which the members are reduced."""
        if self.root is not Strategy.MERGE:
            return ()
        return tuple(member for member in self.members if member.is_merged)


def members_of(schema: Schema, pointer: str = "") -> tuple[Member, ...]:
    """The properties of an object with that schema, in their order."""
    properties = schema.get("properties", {})
    return tuple(_member(name, below, pointer) for name, below in properties.items())


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


def _member(name: str, schema: object, parent: str) -> Member:
    field_type, _ = type_of_schema(schema)
    # A schema may also be `true` or `false`, which annotate nothing.
    known = schema if isinstance(schema, Mapping) else {}
    pointer = extend_pointer(parent, name)
    annotation = annotation_of(known, pointer)
    bare = field_type.kind is Kind.DECIMAL and known.get("format") == Kind.DECIMAL
    member = Member(name, field_type, annotation, bare, parent)
    if annotation.strategy is not Strategy.MERGE:
        return member
    others = known.get("additionalProperties")
    return replace(
        member,
        members=members_of(known, pointer),
        others=annotation_of(others, pointer) if isinstance(others, Mapping) else _LAST_WINS,
        is_object=_is_object(known.get("type")),
    )


def _is_object(declared: object) -> bool:
    names = declared if isinstance(declared, list) else [declared]
    return set(names) - {"null"} == {"object"}
