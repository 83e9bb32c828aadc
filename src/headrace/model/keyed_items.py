"""Orders values by their parts, and treats arrays and objects as maps from key to item."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

from headrace.errors import ReductionError
from headrace.model.json_order import JsonValue, OrderKey, order_key, value_at
from headrace.model.reduction_schema import Location

# By member name in an object, by `key_at` in an array; one map never mixes the two.
Items: TypeAlias = dict[Any, JsonValue]
Reduce: TypeAlias = Callable[[Location, JsonValue, JsonValue], JsonValue]


class Entry(NamedTuple):
    """An item as it was written, with what identifies it and its position."""

    key: Any
    location: Location
    value: JsonValue


def key_at(location: Location, pointers: Iterable[str], value: JsonValue) -> tuple[OrderKey, ...]:
    """Returns the parts of `value` at `pointers` as one key; a missing part is null and so comes first."""
    try:
        return tuple(
            order_key(value_at(value, pointer), location.at(pointer).format_name) for pointer in pointers
        )
    except ValueError as error:
        raise ReductionError(f'at "{location.pointer}": {error}') from None


def array_entries(location: Location, pointers: Iterable[str], array: list[JsonValue]) -> Iterator[Entry]:
    """Yields the items of an array, identified by the values at `pointers`."""
    pointers = tuple(pointers)
    for index, value in enumerate(array):
        item = location.item(index)
        yield Entry(key_at(item, pointers, value), item, value)


def object_entries(location: Location, members: dict[str, JsonValue]) -> Iterator[Entry]:
    """Yields the members of an object, identified by their names."""
    for name, value in members.items():
        yield Entry(name, location.member(name), value)


def add_entries(items: Items, entries: Iterable[Entry], reduce_item: Reduce) -> Items:
    """Adds `entries` to `items`; those with the same key are reduced to one."""
    result = dict(items)
    for key, location, value in entries:
        result[key] = reduce_item(location, result[key], value) if key in result else value
    return result


def in_key_order(items: Items) -> list[JsonValue]:
    """Returns the items as an array, sorted by key."""
    return [items[key] for key in sorted(items)]
