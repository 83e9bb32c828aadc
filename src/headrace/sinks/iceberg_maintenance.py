"""Keeps an Iceberg table fit while pipelines write to it: fewer files, and none that nothing needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from headrace.model.checkpoints import JsonObject
from headrace.sinks.iceberg_names import PREFIX, Names
from headrace.sinks.iceberg_tables import EPOCH, SINK, WRITER, JavaTable, State, staged_id_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Somebody published meanwhile, who goes first.
_CONFLICTS = (
    "org.apache.iceberg.exceptions.CommitFailedException",
    "org.apache.iceberg.exceptions.ValidationException",
)


def maintain_table(
    spark: SparkSession, table: JavaTable, age: timedelta, kept: JsonObject | None, *, has_deletes: bool
) -> Iterator[str]:
    if table.state().main is None:
        return
    session: Any = spark
    actions = session._jvm.org.apache.iceberg.spark.actions.SparkActions.get(session._jsparkSession)
    before = int((time.time() - age.total_seconds()) * 1000)
    yield from _compact(actions, table, has_deletes=has_deletes)
    yield from _expire(table, before, kept)
    orphans = actions.deleteOrphanFiles(table.java).olderThan(before).usePrefixListing(True).execute()
    removed = sum(1 for _ in orphans.orphanFileLocations())
    if removed:
        yield f"{removed} files were removed that no snapshot has"


def _compact(actions: Any, table: JavaTable, *, has_deletes: bool) -> Iterator[str]:
    from py4j.protocol import Py4JJavaError

    try:
        data = actions.rewriteDataFiles(table.java).option("remove-dangling-deletes", "true").execute()
        if data.rewrittenDataFilesCount():
            yield f"{data.rewrittenDataFilesCount()} data files became {data.addedDataFilesCount()}"
        if has_deletes:
            deletes = actions.rewritePositionDeletes(table.java).execute()
            if deletes.rewrittenDeleteFilesCount():
                yield (
                    f"{deletes.rewrittenDeleteFilesCount()} delete files became "
                    f"{deletes.addedDeleteFilesCount()}"
                )
        manifests = actions.rewriteManifests(table.java).execute()
        rewritten = sum(1 for _ in manifests.rewrittenManifests())
        if rewritten:
            yield f"{rewritten} manifests were rewritten"
    except Py4JJavaError as error:
        if not _is_conflict(error.java_exception):
            raise
        yield "files were left as they are, since rows were published at the same time: do it again later"


def _is_conflict(error: Any) -> bool:
    while error is not None:
        if error.getClass().getName() in _CONFLICTS:
            return True
        error = error.getCause()
    return False


def _expire(table: JavaTable, before: int, kept: JsonObject | None) -> Iterator[str]:
    """One by one, as Iceberg itself would also expire what is staged on no branch."""
    state = table.state()
    needed = _needed(state, kept)
    left = [
        int(snapshot.snapshotId())
        for snapshot in state.snapshots()
        if snapshot.timestampMillis() < before and int(snapshot.snapshotId()) not in needed
    ]
    if left:
        table.expire(left)
        yield f"{len(left)} snapshots were expired"


def _needed(state: State, kept: JsonObject | None) -> set[int]:
    """What branches and tags stand at, and what is staged: anybody's, since only he knows what is decided.

    What was staged and is published as another snapshot is not needed any more.
    """
    heads = set(state.references().values())
    published = state.ids_before(heads)
    staged = {int(one.snapshotId()) for one in state.snapshots() if _may_be_published(state, one)}
    decided = {int(kept["snapshot_id"])} if kept else set()
    return heads | decided | (staged - published)


def _may_be_published(state: State, snapshot: Any) -> bool:
    if not staged_id_of(snapshot).startswith(PREFIX):
        return False
    summary = snapshot.summary()
    names = Names(summary.get(WRITER) or "", summary.get(SINK) or "")
    return int(summary.get(EPOCH) or 0) > names.last_epoch(state)
