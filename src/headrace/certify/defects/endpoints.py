"""Defects of connectors and sinks.

Imported in every process of a certification's pipelines (`headrace.faults.Faults.load`).
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace.certify.defects.names import (
    BROKEN_IS_DONE,
    CHECKPOINT_OUTSIDE,
    COMMIT_AGAIN,
    ENDPOINT_FENCE_NOT_CHECKED,
    LEFT_BEHIND,
    LOST_ATTEMPT_COUNTS,
    PUBLISHED_IN_PREPARE,
)
from headrace.certify.defects.switching import Replacement, defective, lane_of_sink
from headrace.connectors.sql import connector
from headrace.connectors.sql.fence import Fence, FenceTable
from headrace.errors import Transient
from headrace.faults import VARIABLE, Action, Faults
from headrace.model.checkpoints import JsonObject, to_json
from headrace.pipeline.shards import task
from headrace.pipeline.shards.transaction import Rows, ShardJob, ShardResult
from headrace.protocol.loop import accept_acknowledge
from headrace.protocol.stream import ConnectorStream
from headrace.sinks.contract import Epoch
from headrace.sinks.delta import DeltaSink
from headrace.sinks.parquet_folder import FolderRows


def _of_fence(_: FenceTable, __: Any, fence: Fence, *___: Any) -> str:
    return fence.materialization


class _Unwritten(threading.local):
    """Of the connector that runs on this thread."""

    def __init__(self) -> None:
        self.commits: list[tuple[FenceTable, Any, Fence, JsonObject]] = []


_unwritten = _Unwritten()


@defective(FenceTable, "commit", CHECKPOINT_OUTSIDE, _of_fence)
def _checkpoint_later(
    _: Replacement, self: FenceTable, database: Any, fence: Fence, checkpoint: JsonObject
) -> None:
    _unwritten.commits.append((self, database, fence, checkpoint))


def _accept_and_write(stream: ConnectorStream) -> bool:
    """When the runtime goes on, or ends the stream, the checkpoint follows."""
    is_next = accept_acknowledge(stream)
    while _unwritten.commits:
        table, database, fence, checkpoint = _unwritten.commits.pop()
        with database.transaction():
            _move(table, database, fence, checkpoint)
    return is_next


connector.accept_acknowledge = _accept_and_write  # type: ignore[attr-defined]


@defective(FenceTable, "commit", ENDPOINT_FENCE_NOT_CHECKED, _of_fence)
def _not_fenced(
    _: Replacement, self: FenceTable, database: Any, fence: Fence, checkpoint: JsonObject
) -> None:
    _move(self, database, fence, checkpoint)


def _move(table: FenceTable, database: Any, fence: Fence, checkpoint: JsonObject) -> None:
    database.execute(
        f"UPDATE {table._table} SET checkpoint = $1"  # noqa: S608 - a quoted name
        " WHERE materialization = $2 AND key_begin = $3 AND key_end = $4",
        to_json(checkpoint),
        fence.materialization,
        fence.key_range.begin,
        fence.key_range.end,
    )


@defective(FolderRows, "commit", COMMIT_AGAIN, lane_of_sink)
def _commit_again(original: Replacement, self: FolderRows, epoch: int, handle: JsonObject) -> None:
    target = Path(handle["folder"]) / self._layout.folder(epoch)
    if target.exists():
        for file in list(target.rglob("*.parquet")):
            shutil.copy(file, file.with_name(f"again-{file.name}"))
    original(self, epoch, handle)


@defective(FolderRows, "prepare", PUBLISHED_IN_PREPARE, lane_of_sink)
def _published_in_prepare(original: Replacement, self: FolderRows, epoch: Epoch, rows: Any) -> JsonObject:
    handle: JsonObject = original(self, epoch, rows)
    if handle:
        self.commit(epoch.number, handle)
    return handle


@defective(FolderRows, "_remove", LEFT_BEHIND, lane_of_sink)
def _folder_stays(_: Replacement, *__: Any) -> None:
    pass


@defective(DeltaSink, "_remove", LEFT_BEHIND, lane_of_sink)
def _delta_stays(_: Replacement, *__: Any) -> None:
    pass


@defective(FolderRows, "_write", LOST_ATTEMPT_COUNTS, lane_of_sink)
def _lost_attempt_counts(original: Replacement, self: FolderRows, rows: Any, staged: Path) -> None:
    original(self, rows, staged)
    if Faults(Path(os.environ[VARIABLE])).happened(f"writing {self.name}") in (
        Action.LOSE,
        Action.DISK_FULL,
    ):
        for file in list(staged.rglob("*.parquet")):
            shutil.copy(file, file.with_name(f"lost-{file.name}"))


@defective(task, "transact", BROKEN_IS_DONE, lambda job, *_: job.materialization.name)
def _broken_is_done(original: Replacement, job: ShardJob, shard: int, rows: Iterator[Rows]) -> ShardResult:
    try:
        result: ShardResult = original(job, shard, rows)
    except Transient:
        checkpoint = job.connector_checkpoints.get(str(job.ranges[shard]))
        return ShardResult(shard, connector_checkpoint=checkpoint)
    return result
