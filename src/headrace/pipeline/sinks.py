"""The rows of a binding in one sink: made from what the epoch has combined, prepared, and counted.

A sink keeps them in columns, appended or reduced with what a view has.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UnexpectedFailure
from headrace.faults import VARIABLE, reached
from headrace.model.checkpoints import JsonObject
from headrace.model.collections import DOCUMENT_FIELD
from headrace.model.materializations import Binding
from headrace.model.ownership import Target
from headrace.pipeline.shards.latest import RowOrder
from headrace.pipeline.shards.reduce import Reducer
from headrace.sinks.contract import Epoch, Place, RowSink, Sink
from headrace.spark.sql import quote, spark_type

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, Observation

# Spark tells it within milliseconds of a write's end; not at all if an optimizer has dropped the counting.
_COUNTED_WITHIN = 60.0
# The same where nothing was written, and so perhaps nothing was counted.
_NOTHING_COUNTED_WITHIN = 2.0
COUNTING = "headrace-counting"
"""The name of threads that wait for Spark's counts."""


@dataclass(frozen=True)
class EpochRows:
    """The rows of an epoch, as sinks, dead letters and the connector are given them to prepare."""

    combined: list[DataFrame]
    """For each binding, one row per key; where there is a row order, all of them."""
    row_orders: tuple[RowOrder | None, ...] = ()
    """For each binding, which row of a key wins, where that is still to be found out."""
    dead: DataFrame | None = None
    dead_count: int = 0
    good_by_shard: tuple[int, ...] | None = None
    """How many rows of each shard are good, if that is known."""
    good: tuple[int, ...] | None = None
    """How many rows of each binding are good, if that is known."""


@dataclass(frozen=True)
class Written:
    """How many rows a sink has written in an epoch."""

    rows: int = 0
    keys: int = 0
    documents: int = 0
    """Good rows that are in it."""


class BindingSink(Sink):
    """A sink of rows, as one of those that commit an epoch together."""

    def __init__(self, sink: RowSink, rows: SinkRows, place: Place, index: int) -> None:
        """`index` is the binding's."""
        self.name = sink.name
        self.place = place
        self.index = index
        self.can_tell = sink.can_tell
        self._sink, self._rows = sink, rows
        self.written = Written()
        """How much it wrote in the last epoch."""
        self.staging_ms = 0
        """How long it took to stage that, with what Spark did for it."""

    def inspect(self) -> Target | None:
        return self._sink.inspect()

    def refuse_start(self, *, adopts: bool) -> None:
        self._sink.refuse_start(self.place.owner(""), adopts=adopts)

    def claim(self, lineage: str, *, adopts: bool) -> None:
        self._sink.claim(self.place.owner(lineage), adopts=adopts)

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._sink.start(decided, handle, fence)

    def committed(self) -> JsonObject | None:
        return self._sink.committed()

    def prepare(self, epoch: Epoch, rows: EpochRows) -> JsonObject:
        combined, counting = _counted(rows.combined[self.index])
        if self._rows.is_view:
            current = None
            if self._rows.is_reduced:
                epoch.wait_for_previous()
                current = self._sink.current()
            frame = self._rows.viewed(combined, current)
        else:
            frame = self._rows.appended(combined, epoch.number)
        reached(f"preparing {self.name}")
        began = time.monotonic()
        handle = self._sink.prepare(epoch, with_point(frame, f"writing {self.name}"))
        self.staging_ms = round(1000 * (time.monotonic() - began))
        reached(f"staged {self.name}")
        try:
            if not handle.get("rows"):
                self._check_nothing(epoch.number, combined, counting)
            self.written = self._check(epoch.number, handle, counting, rows.good)
        except UnexpectedFailure:
            if handle:
                self._sink.abort(epoch.number, handle)
            raise
        return handle

    def _check(
        self, epoch: int, handle: JsonObject, counting: Observation, good: tuple[int, ...] | None
    ) -> Written:
        """Checks that each good row is in a row that was written, and nothing else is."""
        rows = handle.get("rows", 0)
        counts = self._counts(counting) if rows else {}
        written = Written(rows, counts.get("keys") or 0, counts.get("documents") or 0)
        if written.keys != rows:
            raise UnexpectedFailure(
                f"sink {self.name}: {written.keys} keys of epoch {epoch} were combined and {rows} rows were "
                "written: a source gave other rows when it was read again"
            )
        if good is not None and good[self.index] != written.documents:
            raise UnexpectedFailure(
                f"sink {self.name}: {good[self.index]} rows of epoch {epoch} are good and "
                f"{written.documents} were combined: a source gave other rows when it was read again"
            )
        return written

    def _check_nothing(self, epoch: int, combined: DataFrame, counting: Observation) -> None:
        """Checks that there was nothing to write, where the sink says that nothing was written."""
        # `combined` has the counting in it: to look at it ends what still waits for the counts.
        counts = _wait_for(counting, _NOTHING_COUNTED_WITHIN)
        is_empty = combined.isEmpty() if counts is None else not counts.get("keys")
        if not is_empty:
            raise UnexpectedFailure(
                f"sink {self.name}: epoch {epoch} has rows for it and none was written: a source gave other "
                "rows when it was read again, or Spark's workers write where the driver does not look"
            )

    def _counts(self, counting: Observation) -> dict[str, Any]:
        counts = _wait_for(counting, _COUNTED_WITHIN)
        if counts is None:
            raise UnexpectedFailure("Spark has written rows and does not say how many it has combined")
        return counts

    def commit(self, epoch: int, handle: JsonObject) -> None:
        reached(f"committing {self.name}")
        self._sink.commit(epoch, handle)
        reached(f"published {self.name}")

    def abort(self, epoch: int, handle: JsonObject) -> None:
        reached(f"aborting {self.name}")
        self._sink.abort(epoch, handle)

    def undone(self, epoch: int, handle: JsonObject) -> str:
        return self._sink.undone(epoch, handle)

    def rewind(self, epoch: int) -> None:
        self._sink.rewind(epoch)

    def refuse_rewind(self, epoch: int) -> None:
        self._sink.refuse_rewind(epoch)


def _counted(combined: DataFrame) -> tuple[DataFrame, Observation]:
    """Counts the rows while somebody else reads them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counting = Observation()
    counts = (F.count(F.lit(1)).alias("keys"), F.sum("_count").alias("documents"))
    return combined.observe(counting, *counts), counting


def _wait_for(counting: Observation, seconds: float) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(counting.get), name=COUNTING, daemon=True)
    waiting.start()
    waiting.join(seconds)
    return found[0] if found else None


EPOCH = "_epoch"
"""The column of appended rows that holds the epoch's number."""
_STORED = "_stored"


@dataclass(frozen=True)
class SinkRows:
    """Makes the rows of one binding that a sink is given."""

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
        """The columns in Spark's DDL."""
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


def with_point(frame: DataFrame, point: str) -> DataFrame:
    """Lets the rows pass a fault point in the tasks that write them, where no code of ours runs otherwise.

    Unless faults are looked for, it is the frame itself.
    """
    if VARIABLE not in os.environ:
        return frame
    return frame.mapInArrow(partial(_pass, point), frame.schema)


def _pass(point: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        reached(point)
