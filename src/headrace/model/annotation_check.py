"""Checks a schema's `reduce` annotations when it is configured, long before a document meets them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from headrace.errors import SchemaError
from headrace.model.json_order import extend_pointer
from headrace.model.reduction_schema import Annotation, Location, Schema, Strategy, annotation_of
from headrace.model.string_formats import decimal_limits, is_decimal

_FITTING_TYPES = {
    Strategy.SUM: {"integer", "number"},
    Strategy.MERGE: {"object", "array"},
    Strategy.APPEND: {"array"},
    Strategy.SET: {"object"},
}

# Reducing two equal values by one of these gives an equal value, so what they reduce can be a key.
_KEEPS_EQUAL = {
    Strategy.FIRST_WRITE_WINS,
    Strategy.LAST_WRITE_WINS,
    Strategy.MINIMIZE,
    Strategy.MAXIMIZE,
}

_NOT_FOLLOWED = (
    *("$defs", "definitions", "allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
    *("dependentSchemas", "patternProperties", "propertyNames", "unevaluatedProperties"),
    *("additionalItems", "contains", "unevaluatedItems"),
)


def check_annotations(schema: Schema) -> None:
    """Raise `SchemaError`, naming the JSON pointer in the schema, if an annotation can never work.

    Wrong are an unknown strategy, a wrong shape, a strategy that does not fit the declared type, a key that
    its own reduction would change, and an annotation where reductions do not look.
    """
    try:
        _check_schema(schema, "")
    except RecursionError:
        raise SchemaError("the schema nests too deeply to be followed") from None


def _check_schema(schema: Any, pointer: str) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, Mapping):
        raise SchemaError(f'schema at "{pointer}" must be an object or a boolean')
    _check_keywords(schema, pointer)
    if "reduce" in schema:
        _check_annotation(schema, extend_pointer(pointer, "reduce"))
    for keyword in _NOT_FOLLOWED:
        if keyword in schema:
            _refuse_annotations(schema[keyword], extend_pointer(pointer, keyword))
    for child, child_pointer in _children(schema, pointer):
        _check_schema(child, child_pointer)


def _check_keywords(schema: Schema, pointer: str) -> None:
    """Refuses keywords that would confuse the code that reads annotations."""
    if not isinstance(schema.get("properties", {}), Mapping):
        raise SchemaError(f'"{pointer}/properties" must be an object')
    declared = schema.get("type", [])
    if not isinstance(declared, str) and not (
        isinstance(declared, list) and all(isinstance(name, str) for name in declared)
    ):
        raise SchemaError(f'"{pointer}/type" must be the name of a type, or a list of names')


def _children(schema: Schema, pointer: str) -> Iterator[tuple[Any, str]]:
    for name, child in schema.get("properties", {}).items():
        yield child, extend_pointer(extend_pointer(pointer, "properties"), name)
    for keyword in ("additionalProperties", "items", "prefixItems"):
        child = schema.get(keyword, True)
        child_pointer = extend_pointer(pointer, keyword)
        if isinstance(child, list):
            for index, positional in enumerate(child):
                yield positional, extend_pointer(child_pointer, index)
        else:
            yield child, child_pointer


def _refuse_annotations(node: Any, pointer: str) -> None:
    if isinstance(node, Mapping):
        raw = node.get("reduce")
        if isinstance(raw, Mapping) and "strategy" in raw:
            raise SchemaError(
                f'reduce annotation at "{extend_pointer(pointer, "reduce")}" would have no effect: '
                "annotate below `properties`, `additionalProperties`, `items` or `prefixItems`"
            )
        for name, child in node.items():
            _refuse_annotations(child, extend_pointer(pointer, name))
    elif isinstance(node, list):
        for index, child in enumerate(node):
            _refuse_annotations(child, extend_pointer(pointer, index))


def _check_annotation(schema: Schema, pointer: str) -> None:
    annotation = annotation_of(schema, pointer)
    _check_format(schema, pointer)
    _check_type(schema, annotation, pointer)
    if annotation.strategy is Strategy.SET:
        _check_set_terms(schema, annotation, pointer)
    if annotation.key is not None:
        _check_key(schema, annotation, annotation.key, pointer)


def _check_format(schema: Schema, pointer: str) -> None:
    format_name = Location(schema).format_name
    if format_name is None or not is_decimal(format_name):
        return
    try:
        decimal_limits(format_name)
    except SchemaError as error:
        raise SchemaError(f'reduce annotation at "{pointer}": {error}') from None


def _check_type(schema: Schema, annotation: Annotation, pointer: str) -> None:
    fitting = _FITTING_TYPES.get(annotation.strategy)
    if fitting is None:
        return
    declared = _declared_types(schema)
    if annotation.strategy is Strategy.SUM and declared == {"string"}:
        if not is_decimal(Location(schema).format_name):
            raise SchemaError(f'reduce annotation at "{pointer}": `sum` of strings needs a decimal format')
        return
    if not declared <= fitting:
        raise SchemaError(
            f'reduce annotation at "{pointer}": `{annotation.strategy}` does not fit type '
            f"{_listed(declared - fitting)}, only {_listed(fitting)}"
        )


def _listed(types: set[str]) -> str:
    return " or ".join(sorted(types))


def _declared_types(schema: Schema) -> set[str]:
    """Returns the types that the schema names, except for null, which fits every strategy."""
    declared = schema.get("type", [])
    return ({declared} if isinstance(declared, str) else set(declared)) - {"null"}


def _check_set_terms(schema: Schema, annotation: Annotation, pointer: str) -> None:
    for term in ("add", "intersect", "remove"):
        if annotation.key is None and "array" in _declared_types(Location(schema).member(term).schema):
            raise SchemaError(f'reduce annotation at "{pointer}": a `set` of arrays needs a key')


def _check_key(schema: Schema, annotation: Annotation, key: tuple[str, ...], pointer: str) -> None:
    declared = _declared_types(schema)
    match annotation.strategy:
        case Strategy.MERGE:
            if declared and "array" not in declared:
                raise SchemaError(f'reduce annotation at "{pointer}": the key of a `merge` is for arrays')
            _check_array_key(Location(schema), key, pointer)
        case Strategy.SET:
            _check_array_key(Location(schema).member("add"), key, pointer)
        case _:
            if declared and not declared & {"array", "object"} and any(key):
                raise SchemaError(f'reduce annotation at "{pointer}": values of this type have no parts')


def _check_array_key(array: Location, key: tuple[str, ...], pointer: str) -> None:
    if isinstance(array.schema.get("items"), list) or "prefixItems" in array.schema:
        raise SchemaError(f'reduce annotation at "{pointer}": items with a key share one schema')
    for part in key:
        if not _keeps_key(array.item(0), part):
            raise SchemaError(
                f'reduce annotation at "{pointer}": key "{part}" is itself reduced to another value, '
                "so equal items would stop being equal"
            )


def _keeps_key(item: Location, part: str) -> bool:
    """Returns whether items that are equal at `part` remain so after they are reduced."""
    steps = part.split("/")
    for length in range(1, len(steps) + 1):
        annotation = item.at("/".join(steps[:length])).annotation
        if annotation.strategy in _KEEPS_EQUAL:
            return True
        if annotation != Annotation(Strategy.MERGE):
            return False
    return False
