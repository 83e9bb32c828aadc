"""Reductions make one document from two with the same key, by the annotations of their JSON schema.

This is the reference implementation: it defines the strategies, and faster implementations are tested against
it. `docs/reductions.md` tells users the same. Every strategy is associative (a sum of floats up to rounding),
so documents may be combined in any grouping as long as their order is kept.

An annotation has effect at the root, and below a location that is reduced by `merge` (or inside `add` of a
`set`). Everywhere else the last write replaces the whole value. A location that one side lacks keeps the
other side's value. An explicit null is a value to `firstWriteWins` and `lastWriteWins`; to all other
strategies it is no value, and the other side's is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TypeAlias, TypeGuard

from headrace.errors import ReductionError
from headrace.model.annotation_check import check_annotations
from headrace.model.columns import INT64_MAX, INT64_MIN
from headrace.model.json_order import JsonValue, kind_of
from headrace.model.keyed_items import add_entries, array_entries, in_key_order, key_at
from headrace.model.reduction_schema import Annotation, Location, Schema, Strategy, needs_load
from headrace.model.set_reduction import reduce_set
from headrace.model.string_formats import add_decimals, is_decimal

__all__ = ["JsonValue", "check_annotations", "needs_load", "reduce", "reduce_all"]


def reduce(schema: Schema, left: JsonValue, right: JsonValue) -> JsonValue:
    """Reduces `left` with `right`, which was written after it, by the schema's annotations.

    The arguments are never changed, but the result may share parts with them.
    """
    try:
        return _reduce_at(Location(schema), left, right)
    except RecursionError:
        raise ReductionError("the documents nest too deeply to be reduced") from None


def reduce_all(schema: Schema, documents: Iterable[JsonValue]) -> JsonValue:
    """Reduces `documents`, of which there is at least one, in the order in which they were written."""
    rest = iter(documents)
    try:
        result = next(rest)
    except StopIteration:
        raise ReductionError("there is no document to reduce") from None
    for document in rest:
        result = reduce(schema, result, document)
    return result


def _reduce_at(location: Location, left: JsonValue, right: JsonValue) -> JsonValue:
    annotation = location.annotation
    match annotation.strategy:
        case Strategy.FIRST_WRITE_WINS:
            return left
        case Strategy.LAST_WRITE_WINS:
            return right
    if left is None or right is None:
        return right if left is None else left
    return _STRATEGIES[annotation.strategy](location, annotation, left, right)


def _minimize(location: Location, annotation: Annotation, left: JsonValue, right: JsonValue) -> JsonValue:
    pointers = annotation.key or ("",)
    return right if key_at(location, pointers, right) < key_at(location, pointers, left) else left


def _maximize(location: Location, annotation: Annotation, left: JsonValue, right: JsonValue) -> JsonValue:
    pointers = annotation.key or ("",)
    return right if key_at(location, pointers, right) > key_at(location, pointers, left) else left


def _sum(location: Location, annotation: Annotation, left: JsonValue, right: JsonValue) -> JsonValue:
    if _is_number(left) and _is_number(right):
        return _sum_numbers(location, left, right)
    format_name = location.format_name
    if format_name is None or not is_decimal(format_name):
        raise _unfit(location, annotation, left, right)
    if not (isinstance(left, str) and isinstance(right, str)):
        raise _unfit(location, annotation, left, right)
    try:
        return add_decimals(format_name, left, right)
    except ValueError as error:
        raise ReductionError(f'at "{location.pointer}": {error}') from None


def _sum_numbers(location: Location, left: int | float, right: int | float) -> int | float:
    try:
        total = left + right
    except OverflowError:  # an integer that no float can hold
        total = math.inf
    if isinstance(total, int):
        if not INT64_MIN <= total <= INT64_MAX:
            raise ReductionError(f'at "{location.pointer}": the sum does not fit a 64-bit integer')
    elif not math.isfinite(total):
        raise ReductionError(f'at "{location.pointer}": the sum is not a finite number')
    return total


def _is_number(value: JsonValue) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _append(location: Location, annotation: Annotation, left: JsonValue, right: JsonValue) -> JsonValue:
    if isinstance(left, list) and isinstance(right, list):
        return left + right
    raise _unfit(location, annotation, left, right)


def _merge(location: Location, annotation: Annotation, left: JsonValue, right: JsonValue) -> JsonValue:
    if isinstance(left, dict) and isinstance(right, dict):
        return _merge_objects(location, left, right)
    if not (isinstance(left, list) and isinstance(right, list)):
        raise _unfit(location, annotation, left, right)
    if annotation.key is None:
        return _merge_by_index(location, left, right)
    return _merge_by_key(location, annotation.key, left, right)


def _merge_objects(
    location: Location, left: dict[str, JsonValue], right: dict[str, JsonValue]
) -> dict[str, JsonValue]:
    merged = dict(left)
    for name, value in right.items():
        merged[name] = _reduce_at(location.member(name), left[name], value) if name in left else value
    return merged


def _merge_by_index(location: Location, left: list[JsonValue], right: list[JsonValue]) -> list[JsonValue]:
    shared = min(len(left), len(right))
    merged = [_reduce_at(location.item(index), left[index], right[index]) for index in range(shared)]
    return merged + left[shared:] + right[shared:]


def _merge_by_key(
    location: Location, key: tuple[str, ...], left: list[JsonValue], right: list[JsonValue]
) -> list[JsonValue]:
    # Neither side has to be sorted or free of repeated keys; the result is both.
    items = add_entries({}, array_entries(location, key, left), _reduce_at)
    return in_key_order(add_entries(items, array_entries(location, key, right), _reduce_at))


def _set(location: Location, annotation: Annotation, left: JsonValue, right: JsonValue) -> JsonValue:
    return reduce_set(location, annotation.key, left, right, _reduce_at)


def _unfit(location: Location, annotation: Annotation, left: JsonValue, right: JsonValue) -> ReductionError:
    kinds = f"{kind_of(left)} and {kind_of(right)}"
    return ReductionError(f'at "{location.pointer}": `{annotation.strategy}` cannot take {kinds}')


_Reducer: TypeAlias = Callable[[Location, Annotation, JsonValue, JsonValue], JsonValue]

# The two that take null for a value are not here: `_reduce_at` answers them itself.
_STRATEGIES: dict[Strategy, _Reducer] = {
    Strategy.MINIMIZE: _minimize,
    Strategy.MAXIMIZE: _maximize,
    Strategy.SUM: _sum,
    Strategy.MERGE: _merge,
    Strategy.APPEND: _append,
    Strategy.SET: _set,
}
