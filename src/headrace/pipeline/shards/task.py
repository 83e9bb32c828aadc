"""A shard's task in Spark's Python workers: its rows come as Arrow batches, its result goes back as a row.

Nested columns take Spark a fifth longer, so those of a binding that is alone are flat. Where there are
others, each binding is one column, since each row has all columns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.errors import Fenced, HeadraceError, UnexpectedFailure
from headrace.faults import reached
from headrace.model.checkpoints import to_json
from headrace.model.materializations import Binding
from headrace.pipeline.shards.latest import LatestPerKey, RowOrder
from headrace.pipeline.shards.ranges import SHARD, one_partition_each, shard_of
from headrace.pipeline.shards.spool import Spool
from headrace.pipeline.shards.transaction import (
    Rows,
    ShardJob,
    ShardResult,
    as_batch,
    as_rows,
    batch_of,
    transact,
)
from headrace.pipeline.sources.frames import KEY, ORDER
from headrace.pipeline.sources.streams import BINDING
from headrace.spark.sql import quote

_RESULT = pa.schema([("shard", pa.int32()), ("result", pa.string()), ("error", pa.string())])
_RESULT_DDL = "shard int, result string, error string"
_NOBODY = -1
"""The binding of a row that is there so that no shard is empty: Spark leaves out what has no rows at all."""


def run_shards(job: ShardJob, combined: Sequence[DataFrame]) -> list[ShardResult]:
    """Runs the transactions of all shards as one Spark job; `combined` has the rows of each binding.

    Where the job says which wins, these are all rows, with their order.
    """
    count = len(job.ranges)
    # A stream has a session of its own. In one partition: each would be a task.
    rows = (
        combined[0]
        .sparkSession.range(0, count, 1, 1)
        .selectExpr(f"{_NOBODY} as {BINDING}", f"cast(id as int) as {SHARD}")
    )
    for columns, frame in zip(_columns(job), combined, strict=True):
        one = frame.selectExpr(
            f"{columns.index} as {BINDING}",
            f"{shard_of(columns.key, count)} as {SHARD}",
            *columns.sent,
        )
        rows = rows.unionByName(one, allowMissingColumns=True)
    task = partial(_task, job)
    answers = one_partition_each(rows, count).mapInArrow(task, _RESULT_DDL).collect()
    for answer in answers:
        if answer["error"]:
            raise HeadraceError.from_json(answer["error"])
    results = sorted((ShardResult(**json.loads(answer["result"])) for answer in answers), key=_number)
    if [result.shard for result in results] != list(range(count)):
        raise UnexpectedFailure(f"{len(results)} of {count} shards have answered")
    return results


def _columns(job: ShardJob) -> list[BindingColumns]:
    bindings = job.materialization.bindings
    return [
        BindingColumns(index, binding, job.row_order(index), len(bindings) == 1)
        for index, binding in enumerate(bindings)
    ]


def _number(result: ShardResult) -> int:
    return result.shard


def _task(job: ShardJob, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reached(f"{job.materialization.name} task started")
    source = _Source(job, batches)
    try:
        shard = source.shard()
        result = transact(job, shard, source.rows())
        source.count_rest()
        result = replace(result, documents=source.documents, spilled=result.spilled or source.is_spilled)
        answer = [shard, to_json(asdict(result)), None]
    except Fenced:
        # Another attempt has taken over. If that fails, Spark tries again; after an answer it would not.
        raise
    except HeadraceError as error:
        answer = [_NOBODY, None, error.to_json()]
    columns = [pa.array([value], field.type) for value, field in zip(answer, _RESULT, strict=True)]
    yield pa.RecordBatch.from_arrays(columns, schema=_RESULT)


class _Source:
    """The rows of a partition, which is a shard."""

    def __init__(self, job: ShardJob, batches: Iterator[pa.RecordBatch]) -> None:
        self._bindings = _columns(job)
        self._spool_bytes = job.spool_bytes
        self._expected = job.documents
        self._batches = batches
        self._first: pa.RecordBatch | None = None
        self._shard = _NOBODY
        self.documents = 0
        self.is_spilled = False

    def shard(self) -> int:
        """Its number, which every row has."""
        for batch in self._batches:
            if batch.num_rows:
                self._first = batch
                self._shard = batch[SHARD][0].as_py()
                return self._shard
        raise UnexpectedFailure("a partition has no rows, not even the one that each shard has")

    def rows(self) -> Iterator[Rows]:
        """All of them, or an error before the transaction can end."""
        latest: dict[BindingColumns, LatestPerKey] = {}
        spools: list[Spool] = []
        with ExitStack() as stack:
            for binding, rows in self._read():
                if binding.row_order is None:
                    yield binding.rows_of(rows)
                    continue
                if binding not in latest:
                    share = self._spool_bytes // sum(one.row_order is not None for one in self._bindings)
                    spools.append(stack.enter_context(Spool(limit=0)))
                    latest[binding] = LatestPerKey(binding.row_order, len(binding.key), share, spools[-1])
                latest[binding].add(binding.to_compare(rows))
            for binding, rows_per_key in latest.items():
                for won in rows_per_key.rows():
                    yield binding.won(won)
            self.is_spilled = any(spool.is_on_disk for spool in spools)

    def count_rest(self) -> None:
        """Counts the rows of an epoch that the endpoint has already, so that nobody asked for them."""
        for _ in self._read():
            pass

    def _read(self) -> Iterator[tuple[BindingColumns, pa.RecordBatch]]:
        """Yields the rows of each binding, as Spark sends them."""
        while self._first is not None:
            batch, self._first = self._first, None
            if pc.any(pc.not_equal(batch[SHARD], self._shard)).as_py():
                raise UnexpectedFailure(f"the partition of shard {self._shard} has rows of another one")
            for binding in self._bindings:
                chosen = binding.received(batch, pc.equal(batch[BINDING], binding.index))
                if chosen.num_rows:
                    self.documents += binding.documents(chosen)
                    yield binding, chosen
            self._first = next(self._batches, None)
        if self._expected is not None and self.documents != self._expected[self._shard]:
            raise UnexpectedFailure(
                f"shard {self._shard}: {self._expected[self._shard]} rows are good and {self.documents} were "
                "combined: a source gave other rows when it was read again"
            )


_DOCUMENT, _COUNT = "document", "count"


@dataclass(frozen=True, eq=False)
class BindingColumns:
    """How the rows of one binding travel. Rows still to be compared have no document, and count as one."""

    index: int
    binding: Binding
    row_order: RowOrder | None
    is_alone: bool
    """Whether no other binding has rows for the same task."""

    @property
    def key(self) -> list[str]:
        """Names the key's columns in a combined frame."""
        return [f"{KEY}.k{number}" for number in range(len(self.binding.keys))]

    @property
    def sent(self) -> list[str]:
        """Selects in SQL, of a combined frame, what is sent."""
        values = [f"_values.v{number}" for number in range(len(self.binding.values))]
        order = [f"{ORDER}.{quote(name)}" for name in self.row_order.order] if self.row_order else []
        members = [*self.key, *values, *order, *(() if self.row_order else ("_document", "_count"))]
        flat = [f"{member} as {name}" for member, name in zip(members, self._names, strict=True)]
        return flat if self.is_alone else [f"struct({', '.join(flat)}) as {self._whole}"]

    def received(self, batch: pa.RecordBatch, which: pa.BooleanArray) -> pa.RecordBatch:
        """The binding's own columns, of its own rows."""
        if self.is_alone:
            return batch.select(self._names).filter(which)
        return pa.RecordBatch.from_struct_array(batch[self._whole].filter(which))

    def documents(self, rows: pa.RecordBatch) -> int:
        """How many went into these rows."""
        return rows.num_rows if self.row_order else int(pc.sum(rows[_COUNT]).as_py())

    def rows_of(self, rows: pa.RecordBatch) -> Rows:
        document = pa.nulls(rows.num_rows) if self.row_order else rows[_DOCUMENT]
        return Rows(
            self.index,
            _cast(rows, self._keys, self.binding.key_schema),
            _cast(rows, self._values, self.binding.value_schema),
            document.cast(pa.string()),
        )

    def to_compare(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Keys first, and last what orders them."""
        batch = as_batch(self.rows_of(rows))
        columns = [*batch.columns, *(rows[name] for name in self._order)]
        return pa.RecordBatch.from_arrays(columns, [*batch.schema.names, *self._order])

    def won(self, rows: pa.RecordBatch) -> Rows:
        """Makes rows to store of those that were compared and won."""
        return as_rows(self.index, self.binding, rows)

    @property
    def _names(self) -> list[str]:
        others = [] if self.row_order else [_DOCUMENT, _COUNT]
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
        return [f"o{number}" for number in range(len(self.row_order.order) if self.row_order else 0)]


def _cast(rows: pa.RecordBatch, names: Sequence[str], schema: pa.Schema) -> pa.RecordBatch:
    """Under the names and in the types of the binding."""
    columns = [rows[name].cast(field.type) for name, field in zip(names, schema, strict=True)]
    return batch_of(columns, schema, rows.num_rows)
