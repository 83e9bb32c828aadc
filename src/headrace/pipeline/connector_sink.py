"""A connector as a sink: an epoch is prepared by a transaction of each shard, and committed by Acknowledge.

An endpoint that keeps the checkpoints itself has committed when its transactions end, so it is prepared after
all other sinks, and there is nothing left to commit. For any other, the recovery log's decision is the
commit, and Acknowledge tells the connector of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from headrace.errors import CheckpointMoved, Fenced, ProtocolError
from headrace.model.checkpoints import START, JsonObject, merge_patch
from headrace.model.key_range import KeyRange
from headrace.model.materializations import Materialization
from headrace.pipeline.plan import VERSION, ask, connected
from headrace.pipeline.runtime_checkpoint import with_takeover_marker, without_takeover_marker
from headrace.pipeline.settings import MaterializationSettings
from headrace.pipeline.shards.ranges import shard_ranges
from headrace.pipeline.shards.task import run_shards
from headrace.pipeline.shards.transaction import ShardJob, ShardResult
from headrace.pipeline.sinks import EpochRows
from headrace.protocol.connector import ConnectorClient
from headrace.protocol.messages import (
    Acknowledge,
    Acknowledged,
    Apply,
    Delivery,
    Flush,
    Flushed,
    Open,
    Opened,
    StartCommit,
    StartedCommit,
    Validated,
)
from headrace.protocol.stream import RuntimeStream
from headrace.sinks.contract import Epoch, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "connector"
_AT_ONCE = 8  # connections of the driver
T = TypeVar("T")


class ConnectorSink(Sink):
    name = NAME
    cannot_undo = True

    def __init__(
        self,
        settings: MaterializationSettings,
        materialization: Materialization,
        shards: Callable[[], int],
        deliveries: Collection[Delivery],
    ) -> None:
        """`shards` says how many the next epoch has; `deliveries` is what the connector said of bindings."""
        self._settings, self._materialization = settings, materialization
        self._shards, self._deliveries = shards, deliveries
        self._checkpoints: Mapping[str, JsonObject | None] = {}
        self._previous: JsonObject = START
        self.opened: list[JsonObject] | None = None
        """The runtime checkpoint that the endpoint had for each shard at the start; None if it keeps none."""
        self.results: list[ShardResult] = []
        """What the shards of the last epoch did."""

    def ask(self) -> Validated:
        """Asks what is at the endpoint now; changes nothing there, not even a fence."""
        return ask(self._settings)

    def make_ready(self, lineage: str, *, adopts: bool) -> None:
        """Called before `start`: tables are made or changed, and say whose they are."""
        with connected(self._settings) as client:
            client.apply(Apply(self._materialization, VERSION, lineage=lineage, adopts=adopts))

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:  # noqa: ARG002
        self._checkpoints = (handle or {}).get("connector_checkpoints", {})
        ranges = tuple(shard_ranges(self._shards()))
        found = self._on_each(list(ranges), self._checkpoints_for(ranges), _look)
        present = [checkpoint for checkpoint in found if checkpoint is not None]
        if present and len(present) != len(found):
            raise ProtocolError(
                "Opened has a runtime checkpoint for some shards and none for others",
                message_name="Opened",
                expected="one for each, or none at all",
            )
        self.opened = present if present else None
        self._check_deliveries()

    def _check_deliveries(self) -> None:
        """Refuses a connector whose checkpoints are not those of its delivery.

        By a checkpoint in Opened, rows are taken to be committed with their transaction. Those that are only
        staged then would never be published; and without one, those that are committed would come again.
        """
        if self.opened is not None and Delivery.STAGED in self._deliveries:
            raise ProtocolError(
                "the connector stages rows until Acknowledge, and yet Opened has a runtime checkpoint: let "
                "it have none, or let Validated say `transactional` if transactions commit their rows",
                message_name="Opened",
                expected="no runtime checkpoint",
            )
        if self.opened is None and Delivery.TRANSACTIONAL in self._deliveries:
            raise ProtocolError(
                "the connector commits rows with their checkpoint, as Validated says, and yet Opened has no "
                "runtime checkpoint: let it have the last one, or an empty one if there is none",
                message_name="Opened",
                expected="a runtime checkpoint",
            )

    def fence_previous_tasks(self, done: JsonObject, ahead: JsonObject | None) -> None:
        """Says that every shard stands at `done`, or at `ahead`, and keeps tasks of whoever ran before away.

        Such a task, on a host of which we know nothing, may open a shard after us, and would commit an epoch
        that we plan otherwise. So an empty transaction marks the checkpoint of each shard that stands at
        `done`: the task looks for the checkpoint that its epoch begins with, and does not find it. One whose
        shard stands at `ahead` finds that its epoch is there, and has nothing to do, nor have we.
        """
        self._previous = done
        if self.opened is None:
            return
        self._previous = with_takeover_marker(done, uuid4().hex)
        ranges = tuple(shard_ranges(self._shards()))
        checkpoints = self._checkpoints_for(ranges)
        try:
            patches = self._on_each(list(ranges), checkpoints, partial(self._mark, done, ahead))
        except Fenced as error:
            raise self._moved() from error
        self._checkpoints = {
            str(key_range): merge_patch(checkpoints[str(key_range)], patch)
            for key_range, patch in zip(ranges, patches, strict=True)
        }

    def _mark(
        self, done: JsonObject, ahead: JsonObject | None, stream: RuntimeStream, opened: Opened
    ) -> JsonObject | None:
        found = without_takeover_marker(opened.runtime_checkpoint or START)
        if found not in (done, ahead):
            raise self._moved()
        wanted = ahead if found == ahead else self._previous
        patch = None
        if wanted is not None and wanted != opened.runtime_checkpoint:
            patch = _commit_nothing(stream, wanted)
        stream.close()
        return patch

    def _moved(self) -> CheckpointMoved:
        return CheckpointMoved(
            f"materialization {self._materialization.name!r}: a task of another process used a shard while "
            "it was taken over"
        )

    def prepare(self, epoch: Epoch, rows: EpochRows) -> JsonObject:
        if self.opened is not None:
            return self._run(epoch, rows)
        with _combined_meanwhile(epoch, rows.combined):
            return self._run(epoch, rows)

    def _run(self, epoch: Epoch, rows: EpochRows) -> JsonObject:
        ranges = tuple(shard_ranges(self._shards()))
        job = ShardJob(
            self._settings,
            self._materialization,
            ranges,
            self._previous,
            epoch.runtime_checkpoint,
            self._checkpoints_for(ranges),
            rows.good_by_shard,
            rows.row_orders,
        )
        self.results = run_shards(job, rows.combined)
        self._previous = epoch.runtime_checkpoint
        self._checkpoints = {
            str(key_range): result.connector_checkpoint
            for key_range, result in zip(ranges, self.results, strict=True)
        }
        if self.opened is not None and not any(self._checkpoints.values()):
            return {}  # it is committed, and there is nothing to keep
        return {"connector_checkpoints": self._checkpoints}

    def commit(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002
        if self.opened is not None:
            return  # it was, with the transactions
        checkpoints: Mapping[str, Any] = handle["connector_checkpoints"]
        self._on_each(
            [_parse(text) for text in checkpoints], checkpoints, lambda stream, _: _acknowledge(stream)
        )

    def abort(self, epoch: int, handle: JsonObject) -> None:
        """Never called: what was stored cannot be undone."""

    def _checkpoints_for(self, ranges: tuple[KeyRange, ...]) -> Mapping[str, JsonObject | None]:
        """Gives a range as it was its own; one that is part of others, or joins them, gets all of theirs."""
        before = {_parse(text): checkpoint for text, checkpoint in self._checkpoints.items()}
        inherited: dict[str, JsonObject | None] = {}
        for key_range in ranges:
            state = before.get(key_range)
            if key_range not in before:
                for other in sorted(before):
                    if other.overlaps(key_range):
                        state = merge_patch(state, before[other])
            inherited[str(key_range)] = state
        return inherited

    def _on_each(
        self,
        ranges: list[KeyRange],
        checkpoints: Mapping[str, JsonObject | None],
        finish: Callable[[RuntimeStream, Opened], T],
    ) -> list[T]:
        """Opens a stream for each range and ends it."""

        def one(client: ConnectorClient, key_range: KeyRange) -> T:
            stream = client.transactions()
            stream.who = f"{self._materialization.name} driver"
            try:
                stream.send(Open(self._materialization, VERSION, key_range, checkpoints.get(str(key_range))))
                opened = stream.receive()
                assert isinstance(opened, Opened)  # the order leaves nothing else
                return finish(stream, opened)
            finally:
                stream.abandon()

        with (
            connected(self._settings) as client,
            ThreadPoolExecutor(min(_AT_ONCE, len(ranges)), thread_name_prefix="headrace-open") as pool,
        ):
            return list(pool.map(partial(one, client), ranges))


@contextmanager
def _combined_meanwhile(epoch: Epoch, combined: list[DataFrame]) -> Iterator[None]:
    """Waits for the commit of the epoch before, and has this one read and combined until then.

    Shards are opened in the block, since the commit uses streams of the same shards. What was combined is
    kept for it, which has a cost: where there is nothing to wait for, nothing is kept.
    """
    if epoch.is_previous_committed():
        epoch.wait_for_previous()
        yield
        return
    try:
        for frame in combined:
            frame.persist().count()
        epoch.wait_for_previous()
        yield
    finally:
        for frame in combined:
            frame.unpersist()


def _look(stream: RuntimeStream, opened: Opened) -> JsonObject | None:
    stream.close()
    return opened.runtime_checkpoint


def _acknowledge(stream: RuntimeStream) -> None:
    """Acknowledges and no more: the transaction that begins then is given up when the stream is abandoned."""
    stream.send(Acknowledge())
    if not stream.acknowledged:
        response = stream.receive()
        assert isinstance(response, Acknowledged)


def _commit_nothing(stream: RuntimeStream, checkpoint: JsonObject) -> JsonObject | None:
    """Moves the checkpoint in a transaction of its own, and returns the update of the connector's."""
    _acknowledge(stream)
    stream.send(Flush())
    flushed = stream.receive()
    assert isinstance(flushed, Flushed)  # nothing was loaded
    stream.send(StartCommit(checkpoint))
    started = stream.receive()
    assert isinstance(started, StartedCommit)
    return started.connector_checkpoint


def _parse(text: str) -> KeyRange:
    begin, end = text.split("-")
    return KeyRange(int(begin, 16), int(end, 16))
