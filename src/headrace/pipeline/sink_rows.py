"""The rows of an epoch as a sink keeps them: in columns, appended or reduced with what a view has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding
from headrace.pipeline.reduce_arrow import Reducer
from headrace.pipeline.spark_types import quote, spark_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EPOCH = "_epoch"
"""The column of appended rows that holds the epoch's number."""
_STORED = "_stored"


@dataclass(frozen=True)
class SinkRows:
    """What a sink is given of one binding."""

    binding: Binding
    is_view: bool

    @property
    def is_reduced(self) -> bool:
        """Whether what the view has of a key is reduced with what comes."""
        return self.is_view and self.binding.is_loaded

    @property
    def has_document(self) -> bool:
        """A view from which something is reduced needs whole documents; otherwise they are asked for."""
        return self.binding.document is not None

    @property
    def reserved(self) -> tuple[str, ...]:
        """Columns that it has beside the fields, while it is made or for good."""
        if not self.is_view:
            return (EPOCH,)
        return (_STORED,) if self.is_reduced else ()

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.binding.keys)

    @property
    def schema(self) -> str:
        """In Spark's DDL."""
        columns = [
            f"{quote(field.name)} {spark_type(field.type)}"
            for field in (*self.binding.keys, *self.binding.values)
        ]
        if self.has_document:
            columns.append(f"{DOCUMENT_FIELD} string")
        if not self.is_view:
            columns.append(f"{EPOCH} bigint")
        return ", ".join(columns)

    def appended(self, combined: DataFrame, epoch: int) -> DataFrame:
        return combined.selectExpr(*self._columns(), f"cast({epoch} as bigint) as {EPOCH}")

    def viewed(self, combined: DataFrame, current: DataFrame | None) -> DataFrame:
        """The new row of each key; `current` has the rows that the view has, if any of them are needed."""
        new = combined.selectExpr(*self._columns())
        if current is None or not self.is_reduced:
            return new
        keys = [quote(name) for name in self.keys]
        held = current.selectExpr(*keys, f"{DOCUMENT_FIELD} as {_STORED}")
        joined = new.join(held, on=list(self.keys), how="left")
        return joined.mapInArrow(partial(_reduced, self.binding), self.schema)

    def _columns(self) -> list[str]:
        keys = [f"_key.k{index} as {quote(name)}" for index, name in enumerate(self.keys)]
        values = [
            f"_values.v{index} as {quote(field.name)}" for index, field in enumerate(self.binding.values)
        ]
        return [*keys, *values, *([DOCUMENT_FIELD] if self.has_document else [])]


def _reduced(binding: Binding, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reducer = Reducer(binding)
    names = [field.name for field in (*binding.keys, *binding.values)] + [DOCUMENT_FIELD]
    types = {field.name: field.type.arrow for field in (*binding.keys, *binding.values)}
    for batch in batches:
        stored = batch.column(_STORED)
        is_new = pc.is_null(stored)
        yield _selected(batch.filter(is_new), names, types)
        known = batch.filter(pc.invert(is_new))
        if known.num_rows:
            held = known.column(_STORED).cast(pa.string())
            values, documents = reducer.reduce(held, known.column(DOCUMENT_FIELD).cast(pa.string()))
            keys = [known.column(field.name) for field in binding.keys]
            columns = [*keys, *values.columns, documents]
            yield _selected(pa.RecordBatch.from_arrays(columns, names), names, types)


def _selected(batch: pa.RecordBatch, names: list[str], types: dict[str, pa.DataType]) -> pa.RecordBatch:
    columns = [batch.column(name).cast(types.get(name, pa.string())) for name in names]
    return pa.RecordBatch.from_arrays(columns, names)
