"""What a handle keeps of a staged epoch, and whether that is in the history of main.

Iceberg's own procedures move main to another snapshot and leave the table's properties as they are, so the
properties do not tell. A history ends where a snapshot has expired, and then what was before is not known.
"""

from __future__ import annotations

from typing import Any

from headrace.model.checkpoints import JsonObject
from headrace.sinks.iceberg_names import Names
from headrace.sinks.iceberg_tables import PUBLISHED_WAP_ID, State


def make_handle(table: str, snapshot: Any, staged_id: str, *, is_view: bool) -> JsonObject:
    where = {"branch": staged_id, "base": snapshot.parentId()} if is_view else {"wap_id": staged_id}
    return {
        "table": table,
        **where,
        "snapshot_id": int(snapshot.snapshotId()),
        "sequence_number": int(snapshot.sequenceNumber()),
        "rows": int(snapshot.summary().get("added-records") or 0),
    }


def prepared_as(handle: JsonObject) -> str:
    """The id that an epoch was staged under."""
    staged_id: str = handle.get("branch") or handle["wap_id"]
    return staged_id


def is_published(state: State, staged: Any, handle: JsonObject) -> bool:
    """By hand, with Iceberg's own procedure, which does not say so in the table's properties."""
    for snapshot in state.history(state.main):
        if _is_published_as(snapshot, handle):
            return True
        if staged is not None and snapshot.sequenceNumber() < staged.sequenceNumber():
            return False
    return False


def find_rollback(state: State, names: Names, epoch: int, handle: JsonObject) -> str:
    """What took an epoch out of main, as in `RowSink.undone`.

    Each snapshot has a higher sequence number than those before it, except in tables of format version 1,
    where all have 0. There only our own snapshots tell their age, by their epochs.
    """
    staged = state.snapshot(handle["snapshot_id"])
    since = handle.get("sequence_number", 0 if staged is None else staged.sequenceNumber())
    first = None
    for snapshot in state.history(state.main):
        if _is_published_as(snapshot, handle):
            return ""
        reached = names.reached_by(snapshot)
        if snapshot.sequenceNumber() < since or (reached is not None and reached < epoch):
            return f"was rolled back to snapshot {snapshot.snapshotId()}, which is older than epoch {epoch}"
        if reached is not None:
            return ""
        first = snapshot
    if first is None:
        return f"was replaced by an empty table, which does not have epoch {epoch}"
    if _begins_table(first):
        return f"was replaced by snapshot {first.snapshotId()}, which does not have epoch {epoch}"
    return ""


def _is_published_as(snapshot: Any, handle: JsonObject) -> bool:
    """Whether a snapshot of main is what was staged, or a copy that says so."""
    published = snapshot.summary().get(PUBLISHED_WAP_ID)
    return bool(snapshot.snapshotId() == handle["snapshot_id"] or published == prepared_as(handle))


def _begins_table(snapshot: Any) -> bool:
    """Whether there were no rows before it.

    That it has no parent does not tell: some who expire snapshots take the link to them away.
    """
    names = ("total-records", "added-records", "deleted-data-files")
    total, added, deleted = (snapshot.summary().get(name) for name in names)
    return snapshot.parentId() is None and deleted is None and total == (added or "0")
