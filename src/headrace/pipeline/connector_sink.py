"""A connector as a sink: an epoch is prepared by a transaction of each shard, and committed by Acknowledge.

An endpoint that keeps the checkpoints itself has committed when its transactions end, so it is prepared after
all other sinks, and there is nothing left to commit. For any other, the recovery log's decision is the
commit, and Acknowledge tells the connector of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import ProtocolError
from headrace.model.checkpoints import START, JsonObject, merge_patch
from headrace.model.key_range import KeyRange
from headrace.model.materializations import Materialization
from headrace.pipeline.planning import VERSION, connector_client
from headrace.pipeline.settings import MaterializationSettings
from headrace.pipeline.shard_task import run_shards
from headrace.pipeline.shards import shard_ranges
from headrace.pipeline.transaction import ShardJob, ShardResult
from headrace.protocol.messages import Acknowledge, Acknowledged, Open, Opened
from headrace.protocol.stream import RuntimeStream
from headrace.sinks.contract import Epoch, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAME = "connector"
_AT_ONCE = 8  # connections of the driver


class CombinedRows(Protocol):
    """What this sink needs of an epoch's rows."""

    @property
    def combined(self) -> list[DataFrame]:
        """For each binding, one row per key."""


class ConnectorSink(Sink):
    name = NAME
    cannot_undo = True

    def __init__(
        self,
        settings: MaterializationSettings,
        materialization: Materialization,
        shards: Callable[[], int],
    ) -> None:
        """`shards` says how many the next epoch has."""
        self._settings, self._materialization = settings, materialization
        self._shards = shards
        self._checkpoints: Mapping[str, JsonObject | None] = {}
        self._previous: JsonObject = START
        self.opened: list[JsonObject] | None = None
        """The runtime checkpoint that the endpoint had for each shard at the start; None if it keeps none."""
        self.results: list[ShardResult] = []
        """Of the last epoch."""

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:  # noqa: ARG002
        self._checkpoints = (handle or {}).get("connector_checkpoints", {})
        ranges = tuple(shard_ranges(self._shards()))
        answers = self._on_each(list(ranges), self._checkpoints_for(ranges), RuntimeStream.close)
        found = [opened.runtime_checkpoint for opened in answers]
        present = [checkpoint for checkpoint in found if checkpoint is not None]
        if present and len(present) != len(found):
            raise ProtocolError(
                "Opened has a runtime checkpoint for some shards and none for others",
                message_name="Opened",
                expected="one for each, or none at all",
            )
        self.opened = present if present else None

    def go_on_from(self, checkpoint: JsonObject) -> None:
        """Says at which checkpoint every shard stands, or at the one after it."""
        self._previous = checkpoint

    def prepare(self, epoch: Epoch, rows: CombinedRows) -> JsonObject:
        if self.opened is None:
            epoch.wait_for_previous()
        ranges = tuple(shard_ranges(self._shards()))
        job = ShardJob(
            self._settings,
            self._materialization,
            ranges,
            self._previous,
            epoch.runtime_checkpoint,
            self._checkpoints_for(ranges),
        )
        self.results = run_shards(job, rows.combined)
        self._previous = epoch.runtime_checkpoint
        self._checkpoints = {
            str(key_range): result.connector_checkpoint
            for key_range, result in zip(ranges, self.results, strict=True)
        }
        return {"connector_checkpoints": self._checkpoints}

    def commit(self, epoch: int, handle: JsonObject) -> None:  # noqa: ARG002
        if self.opened is not None:
            return  # it was, with the transactions
        checkpoints: Mapping[str, Any] = handle["connector_checkpoints"]
        self._on_each([_parse(text) for text in checkpoints], checkpoints, _acknowledge)

    def abort(self, epoch: int, handle: JsonObject) -> None:
        """Never called: what was stored cannot be undone."""

    def _checkpoints_for(self, ranges: tuple[KeyRange, ...]) -> Mapping[str, JsonObject | None]:
        """Of a range as it was, its own; one that is a part of others, or joins them, gets all of theirs."""
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
        finish: Callable[[RuntimeStream], None],
    ) -> list[Opened]:
        """Opens a stream for each range and ends it."""
        client = connector_client(self._settings)

        def one(key_range: KeyRange) -> Opened:
            stream = client.transactions()
            try:
                stream.send(Open(self._materialization, VERSION, key_range, checkpoints.get(str(key_range))))
                opened = stream.receive()
                assert isinstance(opened, Opened)  # the order leaves nothing else
                finish(stream)
            finally:
                stream.abandon()
            return opened

        with ThreadPoolExecutor(min(_AT_ONCE, len(ranges)), thread_name_prefix="headrace-open") as pool:
            return list(pool.map(one, ranges))


def _acknowledge(stream: RuntimeStream) -> None:
    """And no more: the transaction that begins with it is given up when the stream is abandoned."""
    stream.send(Acknowledge())
    if not stream.acknowledged:
        response = stream.receive()
        assert isinstance(response, Acknowledged)


def _parse(text: str) -> KeyRange:
    begin, end = text.split("-")
    return KeyRange(int(begin, 16), int(end, 16))
