"""Whether a RESTORE has taken an epoch out of a Delta table.

RESTORE brings back the files of an earlier version and says which files it adds and removes. It leaves the
table's application transactions as they are, so those do not tell. The version that it went back to is not
always in the log: if a time was given, Spark keeps it as it was written, without the zone it was meant in.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from headrace.objects import NoSuchObject, ObjectStore
from headrace.sinks.delta_table import Table


@dataclass
class _Entry:
    """One commit of the log."""

    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    transactions: dict[str, int] = field(default_factory=dict)
    restored_to: str = ""
    """What a RESTORE was given, in words; empty for any other operation."""


def find_restore(table: Table, epoch: int) -> str:
    """What took an epoch's files out of the table, as in `RowSink.undone`; empty if the log was cleaned.

    The log is read from its end to the commit of the epoch. A file is lost if a RESTORE removed it and no
    later one has brought it back. If a lost file was made from others, by a compaction or an update, so are
    these: had the RESTORE gone back to a version that had them, it would have brought them back.
    """
    store = table.root.objects(writes=False)
    lost: dict[str, str] = {}
    brought_back: set[str] = set()
    for version in range(table.delta.version(), -1, -1):
        entry = _read(store, version)
        if entry is None:
            return ""
        taken_by = next((lost[path] for path in entry.added if path in lost), "")
        is_rewind = f"{table.own}/rewound" in entry.transactions
        if entry.transactions.get(table.own) == epoch and not is_rewind:
            return f"was restored to {taken_by}, which is older than epoch {epoch}" if taken_by else ""
        if entry.restored_to:
            brought_back |= entry.added
            taken_by = taken_by or entry.restored_to
        if taken_by:
            lost = {**dict.fromkeys(entry.removed - brought_back, taken_by), **lost}
    return ""


def _read(store: ObjectStore, version: int) -> _Entry | None:
    """None if it is not there any more."""
    try:
        text = store.get(f"_delta_log/{version:020}.json", "read the log")
    except NoSuchObject:
        return None
    entry = _Entry()
    for action in map(json.loads, text.splitlines()):
        if "add" in action:
            entry.added.add(unquote(action["add"]["path"]))
        elif "remove" in action:
            entry.removed.add(unquote(action["remove"]["path"]))
        elif "txn" in action:
            entry.transactions[action["txn"]["appId"]] = action["txn"]["version"]
        elif action.get("commitInfo", {}).get("operation") == "RESTORE":
            entry.restored_to = _target(action["commitInfo"].get("operationParameters") or {})
    return entry


def _target(parameters: dict[str, Any]) -> str:
    given = {name: value for name, value in parameters.items() if value not in (None, "", "null")}
    return ", ".join(f"{name} {value}" for name, value in given.items()) or "an earlier version"
