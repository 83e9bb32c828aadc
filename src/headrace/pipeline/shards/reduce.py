"""Reduces what was loaded with what was written, in batches of documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from headrace.model.columns import extract
from headrace.model.materializations import Binding
from headrace.model.reduction_schema import Schema, Strategy, annotation_of
from headrace.model.reductions import reduce
from headrace.pipeline.combine.plan import Plan, plan_of
from headrace.pipeline.shards.json_columns import (
    Columns,
    Inexact,
    read_columns,
    reduce_column,
    typed,
    write_documents,
)


class Reducer:
    """Reduces the documents of one binding: by columns where that gives the same, else one by one."""

    def __init__(self, binding: Binding) -> None:
        self._values = list(binding.values)
        self._value_schema = binding.value_schema
        self._reduce_row = row_reducer(binding.collection.schema)
        self._plan = _plan_by_columns(binding)

    def reduce(
        self, stored: pa.StringArray, documents: pa.StringArray
    ) -> tuple[pa.RecordBatch, pa.StringArray]:
        """The value columns and the documents that `reduce` makes of each stored one and the one after it."""
        if self._plan is not None and len(documents):
            try:
                return self._by_columns(self._plan, stored, documents)
            except Inexact:
                pass  # only this batch; the next one may fit
        return self._by_rows(stored, documents)

    def _by_columns(
        self, plan: Plan, stored: pa.StringArray, documents: pa.StringArray
    ) -> tuple[pa.RecordBatch, pa.StringArray]:
        if plan.root is not Strategy.MERGE:
            texts = stored if plan.root is Strategy.FIRST_WRITE_WINS else documents
            return self._value_columns(plan, read_columns(plan.members, texts)), texts
        left, right = read_columns(plan.members, stored), read_columns(plan.members, documents)
        reduced = {
            member.name: reduce_column(member, left[member.name], right[member.name])
            for member in plan.members
        }
        texts = write_documents(plan.members, reduced, len(documents))
        return self._value_columns(plan, reduced), texts

    def _value_columns(self, plan: Plan, columns: Columns) -> pa.RecordBatch:
        members = {member.pointer: member for member in plan.members}
        found = [columns[members[field.pointer].name] for field in self._values]
        for field, column in zip(self._values, found, strict=True):
            if field.required and column.null_count:
                raise Inexact
        arrays = [typed(field.type, column) for field, column in zip(self._values, found, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=self._value_schema)

    def _by_rows(
        self, stored: pa.StringArray, documents: pa.StringArray
    ) -> tuple[pa.RecordBatch, pa.StringArray]:
        pairs = zip(stored.to_pylist(), documents.to_pylist(), strict=True)
        reduced = [self._reduce_row(orjson.loads(left), orjson.loads(right)) for left, right in pairs]
        texts = pa.array([orjson.dumps(document).decode() for document in reduced], pa.string())
        return extract(self._values, reduced), texts


def _plan_by_columns(binding: Binding) -> Plan | None:
    """The plan of the collection, if each value that the binding stores is a column of it."""
    plan = plan_of(binding.collection.schema)
    if plan is None or plan.merged:  # what is inside of objects is in no column
        return None
    known = {member.pointer for member in plan.members}
    return plan if all(field.pointer in known for field in binding.values) else None


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
