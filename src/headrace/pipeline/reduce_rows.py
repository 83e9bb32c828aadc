"""The reference's reduction of two documents, asked only about the members that need it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from headrace.model.reduction_schema import Schema, Strategy, annotation_of
from headrace.model.reductions import reduce

Document: TypeAlias = Any  # a parsed JSON object
ReduceRow: TypeAlias = Callable[[Document, Document], Document]


def row_reducer(schema: Schema) -> ReduceRow:
    """A function with the results and the errors of `reduce(schema, left, right)`.

    Under `merge` members do not touch each other, and most of them are mostly `lastWriteWins`. Those are
    merged here, by Python's own dictionaries, which is several times faster than the walk of the schema.
    """

    def by_reference(left: Document, right: Document) -> Document:
        return reduce(schema, left, right)

    annotation = annotation_of(schema, "")
    others = schema.get("additionalProperties")
    if annotation.strategy is not Strategy.MERGE or isinstance(others, Mapping):
        return by_reference
    properties = schema.get("properties", {})
    walked = [name for name, below in properties.items() if isinstance(below, Mapping) and "reduce" in below]

    def by_member(left: Document, right: Document) -> Document:
        if not (isinstance(left, dict) and isinstance(right, dict)):
            return reduce(schema, left, right)
        merged = {**left, **right}
        in_both = [name for name in walked if name in left and name in right]
        if in_both:
            reduced = reduce(
                schema, {name: left[name] for name in in_both}, {name: right[name] for name in in_both}
            )
            assert isinstance(reduced, dict)  # as a merge of two objects is
            merged |= reduced
        return merged

    return by_member
