"""How rows travel to the task of their shard, and what it makes of them.

Nested columns take Spark a fifth longer, so those of a binding that is alone are flat. Where there are
others, each binding is one column, since each row has all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.materializations import Binding
from headrace.pipeline.frames import KEY, ORDER
from headrace.pipeline.spark_types import quote
from headrace.pipeline.transaction import Rows, as_batch, as_rows, batch_of
from headrace.pipeline.winners import Contest

_DOCUMENT, _COUNT = "document", "count"


@dataclass(frozen=True, eq=False)
class BindingColumns:
    """Of one binding. Rows that are still in a contest have no document, and are of one each."""

    index: int
    binding: Binding
    contest: Contest | None
    is_alone: bool
    """Whether no other binding has rows for the same task."""

    @property
    def key(self) -> list[str]:
        """In a combined frame."""
        return [f"{KEY}.k{number}" for number in range(len(self.binding.keys))]

    @property
    def sent(self) -> list[str]:
        """In SQL, of a combined frame."""
        values = [f"_values.v{number}" for number in range(len(self.binding.values))]
        order = [f"{ORDER}.{quote(name)}" for name in self.contest.order] if self.contest else []
        members = [*self.key, *values, *order, *(() if self.contest else ("_document", "_count"))]
        flat = [f"{member} as {name}" for member, name in zip(members, self._names, strict=True)]
        return flat if self.is_alone else [f"struct({', '.join(flat)}) as {self._whole}"]

    def received(self, batch: pa.RecordBatch, which: pa.BooleanArray) -> pa.RecordBatch:
        """The binding's own columns, of its own rows."""
        if self.is_alone:
            return batch.select(self._names).filter(which)
        return pa.RecordBatch.from_struct_array(batch[self._whole].filter(which))

    def documents(self, rows: pa.RecordBatch) -> int:
        """How many went into these rows."""
        return rows.num_rows if self.contest else int(pc.sum(rows[_COUNT]).as_py())

    def rows_of(self, rows: pa.RecordBatch) -> Rows:
        document = pa.nulls(rows.num_rows) if self.contest else rows[_DOCUMENT]
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
    def _names(self) -> list[str]:
        others = [] if self.contest else [_DOCUMENT, _COUNT]
        return [*self._keys, *self._values, *self._order, *others]

    @property
    def _whole(self) -> str:
        return f"b{self.index}"

    @property
    def _keys(self) -> list[str]:
        return [f"k{number}" for number in range(len(self.binding.keys))]

    @property
    def _values(self) -> list[str]:
        return [f"v{number}" for number in range(len(self.binding.values))]

    @property
    def _order(self) -> list[str]:
        return [f"o{number}" for number in range(len(self.contest.order) if self.contest else 0)]


def _cast(rows: pa.RecordBatch, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Under the names and in the types of the binding."""
    columns = [rows[name].cast(field.type) for name, field in zip(names, schema, strict=True)]
    return batch_of(columns, schema, rows.num_rows)
