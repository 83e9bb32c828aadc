"""What runs in Spark's Python workers: a shard's rows come as Arrow batches, and its result goes back as a
row.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from headrace.errors import Fenced, HeadraceError, UnexpectedFailure
from headrace.faults import reached
from headrace.model.checkpoints import to_json
from headrace.pipeline.shard_columns import BindingColumns
from headrace.pipeline.shards import SHARD, one_partition_each, shard_of
from headrace.pipeline.sources import BINDING
from headrace.pipeline.spool import Spool
from headrace.pipeline.transaction import Rows, ShardJob, ShardResult, transact
from headrace.pipeline.winners import Winners

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
        BindingColumns(index, binding, job.contest(index), len(bindings) == 1)
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
        contested: dict[BindingColumns, Winners] = {}
        spools: list[Spool] = []
        with ExitStack() as stack:
            for binding, rows in self._read():
                if binding.contest is None:
                    yield binding.rows_of(rows)
                    continue
                if binding not in contested:
                    share = self._spool_bytes // sum(one.contest is not None for one in self._bindings)
                    spools.append(stack.enter_context(Spool(limit=0)))
                    contested[binding] = Winners(binding.contest, len(binding.key), share, spools[-1])
                contested[binding].add(binding.in_contest(rows))
            for binding, winners in contested.items():
                for won in winners.rows():
                    yield binding.won(won)
            self.is_spilled = any(spool.is_on_disk for spool in spools)

    def count_rest(self) -> None:
        """Of an epoch that the endpoint has already, so that nobody asked for its rows."""
        for _ in self._read():
            pass

    def _read(self) -> Iterator[tuple[BindingColumns, pa.RecordBatch]]:
        """What there is of each binding, as Spark sends it."""
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
