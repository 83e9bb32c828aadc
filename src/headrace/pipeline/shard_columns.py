"""How rows travel to the task of their shard, and what it makes of them.

In columns of their own, none within another: nested ones take Spark a fifth longer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.materializations import Binding
from headrace.pipeline.frames import KEY, ORDER
from headrace.pipeline.spark_types import quote
from headrace.pipeline.transaction import Rows, as_batch, as_rows
from headrace.pipeline.winners import Contest


@dataclass(frozen=True, eq=False)
class BindingColumns:
    """Of one binding. Rows that are still in a contest have no document, and are of one each."""

    index: int
    binding: Binding
    contest: Contest | None

    @property
    def key(self) -> list[str]:
        """In a combined frame."""
        return [f"{KEY}.k{number}" for number in range(len(self.binding.keys))]

    @property
    def selected(self) -> list[str]:
        """In SQL, of a combined frame."""
        values = [f"_values.v{number}" for number in range(len(self.binding.values))]
        order = [f"{ORDER}.{quote(name)}" for name in self.contest.order] if self.contest else []
        members = [*self.key, *values, *order, *(() if self.contest else ("_document", "_count"))]
        return [f"{member} as {name}" for member, name in zip(members, self.names, strict=True)]

    @property
    def names(self) -> list[str]:
        """As they arrive."""
        others = [] if self.contest else [self._document, self._count]
        return [*self._keys, *self._values, *self._order, *others]

    def documents(self, rows: pa.RecordBatch) -> int:
        """How many went into these rows."""
        return rows.num_rows if self.contest else int(pc.sum(rows[self._count]).as_py())

    def rows_of(self, rows: pa.RecordBatch) -> Rows:
        document = pa.nulls(rows.num_rows) if self.contest else rows[self._document]
        return Rows(
            self.index,
            _cast(rows, self._keys, self.binding.key_schema),
            _cast(rows, self._values, self.binding.value_schema),
            document.cast(pa.string()),
        )

    def in_contest(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keys first, and last what orders them."""
        batch = as_batch(self.rows_of(rows))
        columns = [*batch.columns, *(rows[name] for name in self._order)]
        return pa.RecordBatch.from_arrays(columns, [*batch.schema.names, *self._order])

    def won(self, rows: pa.RecordBatch) -> Rows:
        """Of what was in the contest."""
        return as_rows(self.index, self.binding, rows)

    @property
    def _keys(self) -> list[str]:
        return [f"b{self.index}k{number}" for number in range(len(self.binding.keys))]

    @property
    def _values(self) -> list[str]:
        return [f"b{self.index}v{number}" for number in range(len(self.binding.values))]

    @property
    def _order(self) -> list[str]:
        return [f"b{self.index}o{number}" for number in range(len(self.contest.order) if self.contest else 0)]

    @property
    def _document(self) -> str:
        return f"b{self.index}document"

    @property
    def _count(self) -> str:
        return f"b{self.index}count"


def _cast(rows: pa.RecordBatch, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Under the names and in the types of the binding."""
    if not names:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows.num_rows, pa.struct([])))
    columns = [rows[name].cast(field.type) for name, field in zip(names, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
