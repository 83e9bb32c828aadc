"""Reads `reduce` annotations of a JSON schema, and follows a schema down into a document.

A schema is followed through `properties`, `additionalProperties`, `items` and `prefixItems`. Annotations
anywhere else, such as in `$defs` or `allOf`, would silently have no effect, so `check_annotations`
refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from headrace.errors import SchemaError
from headrace.model.json_order import extend_pointer, is_index, steps_of

Schema: TypeAlias = Mapping[str, Any]

# "~" only ever stands before 0 or 1 in a JSON pointer.
_POINTER = re.compile(r"(/([^~/]|~[01])*)*")


class Strategy(StrEnum):
    """The ways in which an earlier and a later value become one."""

    FIRST_WRITE_WINS = "firstWriteWins"
    LAST_WRITE_WINS = "lastWriteWins"
    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"
    SUM = "sum"
    MERGE = "merge"
    APPEND = "append"
    SET = "set"


TAKES_KEY = frozenset({Strategy.MINIMIZE, Strategy.MAXIMIZE, Strategy.MERGE, Strategy.SET})


@dataclass(frozen=True, slots=True)
class Annotation:
    """The strategy of a location and, if it orders values by their parts, the pointers to those parts."""

    strategy: Strategy = Strategy.LAST_WRITE_WINS
    key: tuple[str, ...] | None = None


def annotation_of(schema: Schema, pointer: str) -> Annotation:
    """Returns the annotation at the root of `schema`; a malformed one is a `SchemaError` that names
    `pointer`."""
    if "reduce" not in schema:
        return Annotation()
    raw = schema["reduce"]
    if not isinstance(raw, Mapping):
        raise SchemaError(f'reduce annotation at "{pointer}" must be an object such as {{"strategy": "sum"}}')
    strategy = _strategy_of(raw, pointer)
    allowed = {"strategy", "key"} if strategy in TAKES_KEY else {"strategy"}
    for name in raw:
        if name not in allowed:
            raise SchemaError(f'reduce annotation at "{pointer}": `{strategy}` does not take {name!r}')
    return Annotation(strategy, _key_of(raw, pointer))


def _strategy_of(raw: Mapping[str, Any], pointer: str) -> Strategy:
    try:
        return Strategy(raw.get("strategy", ""))
    except ValueError:
        known = ", ".join(Strategy)
        raise SchemaError(
            f'reduce annotation at "{pointer}" has strategy {raw.get("strategy")!r}; known are {known}'
        ) from None


def _key_of(raw: Mapping[str, Any], pointer: str) -> tuple[str, ...] | None:
    if "key" not in raw:
        return None
    key = raw["key"]
    if not isinstance(key, list) or not key or not all(map(_is_pointer, key)):
        raise SchemaError(
            f'reduce annotation at "{pointer}": key must list one or more JSON pointers, such as ["/id"]'
        )
    return tuple(key)


def _is_pointer(text: object) -> bool:
    return isinstance(text, str) and _POINTER.fullmatch(text) is not None


def needs_load(schema: Schema) -> bool:
    """Returns whether the stored document matters to the next one: not if the last write wins at the root."""
    return annotation_of(schema, "").strategy is not Strategy.LAST_WRITE_WINS


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a document, by JSON pointer, with the schema that applies there."""

    schema: Schema
    pointer: str = ""

    @property
    def annotation(self) -> Annotation:
        return annotation_of(self.schema, self.pointer)

    @property
    def format_name(self) -> str | None:
        declared = self.schema.get("format")
        return declared if isinstance(declared, str) else None

    def member(self, name: str) -> Location:
        """Returns the location of the property with that name."""
        schema = self.schema.get("properties", {}).get(name, self.schema.get("additionalProperties"))
        return self._below(schema, name)

    def item(self, index: int) -> Location:
        """Returns the location of the array item at that index; a list of schemas under `items` is the older
        `prefixItems`."""
        items = self.schema.get("items")
        prefix = items if isinstance(items, list) else self.schema.get("prefixItems", [])
        return self._below(prefix[index] if index < len(prefix) else items, index)

    def at(self, pointer: str) -> Location:
        """Returns the location at a pointer that is relative to this one."""
        location = self
        for step in steps_of(pointer):
            location = location._step(step)
        return location

    def _step(self, step: str) -> Location:
        # Without a document only the schema can tell whether "0" is an index or a name.
        has_items = "items" in self.schema or "prefixItems" in self.schema
        if has_items and is_index(step) and step not in self.schema.get("properties", {}):
            return self.item(int(step))
        return self.member(step)

    def _below(self, schema: Any, step: str | int) -> Location:
        # A schema may also be `true`, `false` or absent; none of them annotates anything.
        return Location(schema if isinstance(schema, Mapping) else {}, extend_pointer(self.pointer, step))
