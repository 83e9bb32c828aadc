"""The `set` strategy: each value is an update to a set, and reducing two of them composes the updates.

A value is an object with the members `add`, and `intersect` or `remove`, all optional. It says: of the set
so far keep only `intersect` (or drop `remove`), then add `add`. An item that is in the set already is
reduced with the added one, so sets work as maps. As the left update U1 comes first, the two compose to

    add        what the right `intersect` or `remove` leaves of the left `add`, then the right `add`
    intersect  I1 and I2 give their intersection; I1 and R2, or R1 and I2, give I without R
    remove     R1 and R2 give their union; absent where either side has `intersect`

which makes the strategy associative. It is also why `remove` and `intersect` stay in a result: something
older may yet come before it. The members of a set are those under `add`.

All terms of both sides are arrays, whose items the annotation's `key` identifies, or all are objects, whose
member names do. Values inside `remove` and `intersect` mean nothing; of equal ones the left is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.errors import ReductionError
from headrace.model.json_order import JsonValue, kind_of
from headrace.model.keyed_items import (
    Entry,
    Items,
    Reduce,
    add_entries,
    array_entries,
    in_key_order,
    object_entries,
)
from headrace.model.reduction_schema import Location

_TERMS = ("add", "intersect", "remove")

_Key: TypeAlias = tuple[str, ...] | None
_Term: TypeAlias = list[JsonValue] | dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class _Update:
    """A set update. An absent term is None, because an empty `intersect` is not the same as none."""

    add: list[Entry] | None
    intersect: Items | None
    remove: Items | None

    def leaves_of(self, items: Items) -> Items:
        """Returns the `items` that remain before this update adds its own."""
        if self.intersect is not None:
            return {key: value for key, value in items.items() if key in self.intersect}
        return _without(items, self.remove)


def reduce_set(
    location: Location, key: _Key, left: JsonValue, right: JsonValue, reduce_item: Reduce
) -> JsonValue:
    """Composes the update `left` and then the update `right` into one update."""
    left_terms, right_terms = _terms(location, key, left), _terms(location, key, right)
    kinds = {type(term) for term in (*left_terms.values(), *right_terms.values())}
    if len(kinds) > 1:
        raise ReductionError(f'at "{location.pointer}": a set mixes arrays and objects')
    before, after = _update(location, key, left_terms), _update(location, key, right_terms)
    composed = {
        "add": _composed_add(before, after, reduce_item),
        "intersect": _composed_intersect(before, after),
        "remove": _composed_remove(before, after),
    }
    as_written = in_key_order if kinds == {list} else _as_object
    return {name: as_written(items) for name, items in composed.items() if items is not None}


def _composed_add(before: _Update, after: _Update, reduce_item: Reduce) -> Items | None:
    if before.add is None and after.add is None:
        return None
    left = add_entries({}, before.add or (), reduce_item)
    return add_entries(after.leaves_of(left), after.add or (), reduce_item)


def _composed_intersect(before: _Update, after: _Update) -> Items | None:
    if before.intersect is not None:
        return after.leaves_of(before.intersect)
    if after.intersect is not None:
        return _without(after.intersect, before.remove)
    return None


def _composed_remove(before: _Update, after: _Update) -> Items | None:
    if before.intersect is not None or after.intersect is not None:
        return None
    if before.remove is None or after.remove is None:
        return after.remove if before.remove is None else before.remove
    return before.remove | _without(after.remove, before.remove)


def _without(items: Items, removed: Items | None) -> Items:
    return {key: value for key, value in items.items() if key not in (removed or {})}


def _as_object(items: Items) -> JsonValue:
    return items


def _terms(location: Location, key: _Key, value: JsonValue) -> dict[str, _Term]:
    if not isinstance(value, dict):
        raise ReductionError(f'at "{location.pointer}": `set` takes objects, not {kind_of(value)}')
    terms: dict[str, _Term] = {}
    for name, term in value.items():
        at = location.member(name).pointer
        if name not in _TERMS:
            raise ReductionError(f'at "{at}": a set has the members {", ".join(_TERMS)} and no other')
        if not isinstance(term, list | dict):
            raise ReductionError(f'at "{at}": a term of a set is an array or an object, not {kind_of(term)}')
        if isinstance(term, list) and key is None:
            raise ReductionError(f'at "{at}": a set of arrays needs a key in its annotation')
        terms[name] = term
    if "intersect" in terms and "remove" in terms:
        raise ReductionError(f'at "{location.pointer}": a set has `intersect` or `remove`, not both')
    return terms


def _update(location: Location, key: _Key, terms: Mapping[str, _Term]) -> _Update:
    entries = {name: list(_entries(location, key, name, term)) for name, term in terms.items()}
    return _Update(
        entries.get("add"), _first_of_each(entries.get("intersect")), _first_of_each(entries.get("remove"))
    )


def _entries(location: Location, key: _Key, name: str, term: _Term) -> Iterator[Entry]:
    # Keys must compare alike in all terms, so the schema of `add` defines their formats everywhere.
    place = Location(location.member("add").schema, location.member(name).pointer)
    if isinstance(term, dict):
        return object_entries(place, term)
    return array_entries(place, key or (), term)


def _first_of_each(entries: list[Entry] | None) -> Items | None:
    return None if entries is None else add_entries({}, entries, lambda _location, first, _later: first)
