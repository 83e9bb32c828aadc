"""Reduces what was loaded with what was written, in batches of documents."""

from __future__ import annotations

import orjson
import pyarrow as pa

from headrace.model.columns import extract
from headrace.model.materializations import Binding
from headrace.model.reduction_schema import Strategy
from headrace.pipeline.reduce_columns import reduce_column, typed, write_documents
from headrace.pipeline.reduce_plan import Plan, plan_of
from headrace.pipeline.reduce_read import Columns, Inexact, read_columns
from headrace.pipeline.reduce_rows import row_reducer


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
