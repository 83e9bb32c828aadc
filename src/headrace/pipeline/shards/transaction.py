"""The transaction of one shard in one epoch, in a Spark task: Open, Acknowledge, Load, reduce, Store,
StartCommit.

A task may be run again, or twice at once. The fence of the endpoint lets one attempt commit. An attempt that
finds the epoch's own checkpoint in the endpoint has nothing to do; one that finds neither that nor the
checkpoint before it was overtaken by another driver, and stops.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import CheckpointMoved, ProtocolError
from headrace.model.checkpoints import JsonObject, merge_patch
from headrace.model.key_range import KeyRange
from headrace.model.materializations import Binding, Materialization
from headrace.pipeline.plan import VERSION, connected
from headrace.pipeline.settings import MaterializationSettings
from headrace.pipeline.shards.latest import RowOrder
from headrace.pipeline.shards.reduce import Reducer
from headrace.pipeline.shards.spool import DIGEST, Spool
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Flush,
    Flushed,
    Load,
    Loaded,
    Open,
    Opened,
    StartCommit,
    StartedCommit,
    Store,
)
from headrace.protocol.stream import RuntimeStream

ROWS_PER_MESSAGE = 10_000
BYTES_PER_MESSAGE = 4 << 20


@dataclass(frozen=True)
class ShardJob:
    """The task of an epoch's shards, as it travels to the workers."""

    settings: MaterializationSettings
    materialization: Materialization
    ranges: tuple[KeyRange, ...]
    previous: JsonObject
    """The runtime checkpoint of the epoch before."""
    target: JsonObject
    """The runtime checkpoint of this one."""
    connector_checkpoints: Mapping[str, JsonObject | None] = field(default_factory=dict)
    """By range."""
    documents: tuple[int, ...] | None = None
    """How many each shard has to get; None if nobody has counted them."""
    row_orders: tuple[RowOrder | None, ...] = ()
    """For each binding, which of a key's rows wins, if they are not combined yet; empty if all are."""
    spool_bytes: int = 64 << 20

    def row_order(self, binding: int) -> RowOrder | None:
        return self.row_orders[binding] if self.row_orders else None


@dataclass(frozen=True)
class ShardResult:
    shard: int
    was_done: bool = False
    """Whether the endpoint had this epoch already."""
    documents: int = 0
    keys: int = 0
    loaded: int = 0
    stored: int = 0
    spilled: bool = False
    load_ms: int = 0
    store_ms: int = 0
    commit_ms: int = 0
    connector_checkpoint: JsonObject | None = None


@dataclass(frozen=True)
class Rows:
    """Combined rows of one binding."""

    binding: int
    keys: pa.RecordBatch
    values: pa.RecordBatch
    documents: pa.StringArray

    def slices(self) -> Iterator[Rows]:
        """Yields parts of a size that a message may have."""
        total = self.keys.num_rows
        size = self.keys.nbytes + self.values.nbytes + self.documents.nbytes
        step = max(1, min(ROWS_PER_MESSAGE, total * BYTES_PER_MESSAGE // max(size, 1)))
        for begin in range(0, total, step):
            yield Rows(
                self.binding,
                self.keys.slice(begin, step),
                self.values.slice(begin, step),
                self.documents.slice(begin, step),
            )


def transact(job: ShardJob, shard: int, rows: Iterator[Rows]) -> ShardResult:
    """Runs the transaction; `rows` are those of the shard, each key once."""
    key_range = job.ranges[shard]
    checkpoint = job.connector_checkpoints.get(str(key_range))
    with connected(job.settings) as client, client.transactions() as stream:
        stream.who = f"{job.materialization.name} task"
        stream.send(Open(job.materialization, VERSION, key_range, checkpoint))
        opened = _expect(stream, Opened)
        if opened.runtime_checkpoint is not None:
            if opened.runtime_checkpoint == job.target:
                return ShardResult(shard, was_done=True, connector_checkpoint=checkpoint)
            if opened.runtime_checkpoint != job.previous:
                raise CheckpointMoved(
                    f"materialization {job.materialization.name!r}, keys {key_range}: the endpoint is neither"
                    " at the epoch before this one nor at this one: another process has written to it"
                )
        return _Transaction(job, stream, shard, checkpoint).run(rows)


class _Transaction:
    def __init__(
        self, job: ShardJob, stream: RuntimeStream, shard: int, checkpoint: JsonObject | None
    ) -> None:
        self._job, self._stream, self._shard, self._checkpoint = job, stream, shard, checkpoint
        self._bindings = job.materialization.bindings
        self._loads = [binding.is_loaded for binding in self._bindings]
        self._keys = self._loaded = self._stored = 0

    def run(self, rows: Iterator[Rows]) -> ShardResult:
        self._stream.send(Acknowledge())
        began = time.monotonic()
        with Spool(self._job.spool_bytes) as spool:
            if any(self._loads):
                self._load(rows, spool)
                loaded_at = time.monotonic()
                self._store_spooled(spool)
            else:
                self._finish_loading()
                loaded_at = time.monotonic()
                for some in rows:
                    self._store(some, False)
            spilled = spool.is_on_disk
        stored_at = time.monotonic()
        self._stream.send(StartCommit(self._job.target))
        started = _expect(self._stream, StartedCommit)
        committed_at = time.monotonic()
        return ShardResult(
            self._shard,
            keys=self._keys,
            loaded=self._loaded,
            stored=self._stored,
            spilled=spilled,
            load_ms=_ms(began, loaded_at),
            store_ms=_ms(loaded_at, stored_at),
            commit_ms=_ms(stored_at, committed_at),
            connector_checkpoint=merge_patch(self._checkpoint, started.connector_checkpoint),
        )

    def _finish_loading(self) -> None:
        if not self._stream.acknowledged:
            _expect(self._stream, Acknowledged)
        self._stream.send(Flush())
        _expect(self._stream, Flushed)

    def _load(self, rows: Iterator[Rows], spool: Spool) -> None:
        """Answers are taken as they come, or a connector that answers each Load at once would wait for us."""
        answers = _Answers(self._stream, spool)
        answers.start()
        try:
            for some in rows:
                for part in some.slices():
                    load = Load(part.binding, part.keys)
                    spool.add(f"rows-{part.binding}", as_batch(part), load.digests)
                    if self._loads[part.binding]:
                        self._stream.send(load)
            answers.wait_for_acknowledged()
            self._stream.send(Flush())
        except BaseException:
            self._stream.abandon()  # or nobody would answer any more
            raise
        answers.join()
        self._loaded = answers.count

    def _store_spooled(self, spool: Spool) -> None:
        for bucket in spool.buckets():
            for index, binding in enumerate(self._bindings):
                table = bucket.get(f"rows-{index}")
                if table is not None:
                    self._store_joined(index, binding, table, bucket.get(f"loaded-{index}"))

    def _store_joined(self, index: int, binding: Binding, rows: pa.Table, loaded: pa.Table | None) -> None:
        if loaded is None:
            for batch in rows.to_batches():
                self._store(as_rows(index, binding, batch), False)
            return
        places = pc.index_in(rows[DIGEST], value_set=loaded[DIGEST].combine_chunks())
        exists = pc.is_valid(places)
        for batch in rows.filter(pc.invert(exists)).to_batches():
            self._store(as_rows(index, binding, batch), False)
        stored = loaded["document"].take(places.drop_null())
        before = 0
        reducer = Reducer(binding)
        for batch in rows.filter(exists).to_batches(max_chunksize=ROWS_PER_MESSAGE):
            new = as_rows(index, binding, batch)
            held = stored.slice(before, batch.num_rows).combine_chunks()
            before += batch.num_rows
            values, documents = reducer.reduce(held, new.documents)
            self._store(Rows(index, new.keys, values, documents), True)

    def _store(self, rows: Rows, exists: bool) -> None:
        binding = self._bindings[rows.binding]
        for part in rows.slices():
            count = part.keys.num_rows
            self._stream.send(
                Store(
                    part.binding,
                    part.keys,
                    part.values,
                    part.documents if binding.document else None,
                    pa.repeat(pa.scalar(exists), count),
                )
            )
            self._stored += count
            self._keys += count


class _Answers(Thread):
    """Reads what the connector sends from Acknowledge to Flushed."""

    def __init__(self, stream: RuntimeStream, spool: Spool) -> None:
        super().__init__(name="headrace-answers", daemon=True)
        self._stream, self._spool = stream, spool
        self._acknowledged = Event()
        self._error: BaseException | None = None
        self.count = 0

    def run(self) -> None:
        try:
            while not isinstance(response := self._stream.receive(), Flushed):
                if isinstance(response, Acknowledged):
                    self._acknowledged.set()
                elif isinstance(response, Loaded):
                    self.count += response.keys.num_rows
                    found = pa.RecordBatch.from_arrays([response.documents], ["document"])
                    self._spool.add(f"loaded-{response.binding}", found, response.digests)
        except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits
            self._error = error
        finally:
            self._acknowledged.set()

    def wait_for_acknowledged(self) -> None:
        self._acknowledged.wait()
        self._check()

    def join(self, timeout: float | None = None) -> None:
        super().join(timeout)
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error


def as_batch(rows: Rows) -> pa.RecordBatch:
    """Puts rows in one batch for the spool; the number of columns tells keys from values."""
    columns = [*rows.keys.columns, *rows.values.columns, rows.documents]
    return pa.RecordBatch.from_arrays(columns, [str(index) for index in range(len(columns))])


def as_rows(index: int, binding: Binding, batch: pa.RecordBatch) -> Rows:
    keys = len(binding.keys)
    values = len(binding.values)
    return Rows(
        index,
        batch_of(batch.columns[:keys], binding.key_schema, batch.num_rows),
        batch_of(batch.columns[keys : keys + values], binding.value_schema, batch.num_rows),
        batch.columns[keys + values],
    )


def batch_of(columns: Sequence[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """So many rows, also if there is no column to tell."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(columns), schema=schema)


def _expect(stream: RuntimeStream, kind: type[Any]) -> Any:
    """The next response, of which the order leaves only one kind."""
    response = stream.receive()
    if not isinstance(response, kind):
        raise ProtocolError(
            f"{type(response).__name__} came for {kind.__name__}",
            message_name=type(response).__name__,
            phase=str(stream.phase),
            expected=kind.__name__,
        )
    return response


def _ms(begin: float, end: float) -> int:
    return round(1000 * (end - begin))
