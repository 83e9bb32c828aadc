"""The fence: a table of checkpoints in the endpoint that lets one instance commit for a key, and no other.

Each row is a key range of a materialization, with a fence that rises whenever an instance opens a range that
overlaps it, and the runtime checkpoint of the last commit. A commit moves its own row's checkpoint in the
transaction that moves the data, and only while the row's fence is the one that it was given when it opened;
otherwise it was replaced and rolls back.

Ranges may be opened that split or join older ones. Rows are never removed, so several may cover a key;
the one opened last owns it (`opened` counts opens). A newly opened range takes over the checkpoint of
the owners of its keys. They agree unless the ranges stopped at different transactions: then no one
checkpoint is right for all keys, the older would repeat and the newer would lose, so the open is refused.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace.connectors.sql.database import Database
from headrace.connectors.sql.dialect import quote_path
from headrace.errors import CheckpointConflict, Fenced
from headrace.model.checkpoints import START, JsonObject, to_json
from headrace.model.key_range import FULL_RANGE, KeyRange

CHECKPOINTS_TABLE = "headrace_checkpoints"


@dataclass(frozen=True)
class CheckpointRow:
    key_range: KeyRange
    fence: int
    checkpoint: JsonObject
    opened: int
    holder: str


@dataclass(frozen=True)
class Fence:
    """The right to commit for a key range, until another instance opens an overlapping one."""

    materialization: str
    key_range: KeyRange
    number: int
    checkpoint: JsonObject
    holder: str
    """The unique id of the instance. Unlike the fence's number, it also distinguishes the row from one that
    replaced a removed one."""


class FenceTable:
    """The checkpoints table of one endpoint."""

    def __init__(self, path: Sequence[str]) -> None:
        self._table = quote_path(path)

    @property
    def create_statement(self) -> str:
        return f"""CREATE TABLE IF NOT EXISTS {self._table} (
  materialization TEXT NOT NULL,
  key_begin BIGINT NOT NULL,
  key_end BIGINT NOT NULL,
  fence BIGINT NOT NULL,
  checkpoint TEXT NOT NULL,
  opened BIGINT NOT NULL,
  holder TEXT NOT NULL,
  PRIMARY KEY (materialization, key_begin, key_end)
)"""

    def install(self, database: Database, materialization: str, key_range: KeyRange) -> Fence:
        """Takes over a key range. The caller has begun a transaction in which no other open runs."""
        database.execute(
            f"UPDATE {self._table} SET fence = fence + 1"  # noqa: S608 - the only text put in is a quoted name
            " WHERE materialization = $1 AND key_begin <= $2 AND key_end >= $3",
            materialization,
            key_range.end,
            key_range.begin,
        )
        rows = self._overlapping(database, materialization, key_range)
        checkpoint = inherited_checkpoint(rows, materialization, key_range)
        opened = 1 + max((row.opened for row in rows), default=0)
        holder = _this_process()
        same = [row for row in rows if row.key_range == key_range]
        if same:
            database.execute(
                f"UPDATE {self._table} SET checkpoint = $1, opened = $2, holder = $3"  # noqa: S608
                " WHERE materialization = $4 AND key_begin = $5 AND key_end = $6",
                to_json(checkpoint),
                opened,
                holder,
                materialization,
                key_range.begin,
                key_range.end,
            )
            return Fence(materialization, key_range, same[0].fence, checkpoint, holder)
        database.execute(
            f"INSERT INTO {self._table}"  # noqa: S608
            " (materialization, key_begin, key_end, fence, checkpoint, opened, holder)"
            " VALUES ($1, $2, $3, 1, $4, $5, $6)",
            materialization,
            key_range.begin,
            key_range.end,
            to_json(checkpoint),
            opened,
            holder,
        )
        return Fence(materialization, key_range, 1, checkpoint, holder)

    def commit(self, database: Database, fence: Fence, checkpoint: JsonObject) -> None:
        """Moves the checkpoint in the caller's transaction, or raises `Fenced`, upon which the caller rolls
        back."""
        moved = database.execute(
            f"UPDATE {self._table} SET checkpoint = $1"  # noqa: S608
            " WHERE materialization = $2 AND key_begin = $3 AND key_end = $4 AND fence = $5 AND holder = $6",
            to_json(checkpoint),
            fence.materialization,
            fence.key_range.begin,
            fence.key_range.end,
            fence.number,
            fence.holder,
        )
        if moved != 1:
            raise self._fenced(database, fence)

    def checkpoints(self, database: Database, materialization: str) -> tuple[JsonObject, ...]:
        """Returns the checkpoints that an open of the full range would inherit; empty if nobody ever opened
        one."""
        rows = self._overlapping(database, materialization, FULL_RANGE)
        return tuple(checkpoint for _, checkpoint in _owned_pieces(rows, FULL_RANGE)) if rows else ()

    def _fenced(self, database: Database, fence: Fence) -> Fenced:
        rows = self._overlapping(database, fence.materialization, fence.key_range)
        if not rows:
            taken_by = "somebody who removed its row"
        else:
            latest = max(rows, key=lambda row: row.opened)
            taken_by = f"{latest.holder} with keys {latest.key_range} and fence {latest.fence}"
        return Fenced(
            f"materialization {fence.materialization!r}, keys {fence.key_range}: fence {fence.number} "
            f"was taken over by {taken_by}; nothing of this transaction was committed",
            materialization=fence.materialization,
            key_range=str(fence.key_range),
            fence=fence.number,
            taken_by=taken_by,
        )

    def _overlapping(
        self, database: Database, materialization: str, key_range: KeyRange
    ) -> list[CheckpointRow]:
        rows = database.query(
            "SELECT key_begin, key_end, fence, checkpoint, opened, holder"  # noqa: S608
            f" FROM {self._table} WHERE materialization = $1 AND key_begin <= $2 AND key_end >= $3",
            materialization,
            key_range.end,
            key_range.begin,
        )
        return [
            CheckpointRow(KeyRange(begin, end), fence, json.loads(checkpoint), opened, holder)
            for begin, end, fence, checkpoint, opened, holder in rows
        ]


def inherited_checkpoint(
    rows: Sequence[CheckpointRow], materialization: str, key_range: KeyRange
) -> JsonObject:
    """Returns the checkpoint of the last owner of the keys of this range; refuses if several owners
    disagree."""
    pieces = _owned_pieces(rows, key_range)
    first_range, first = pieces[0]
    for piece, checkpoint in pieces[1:]:
        if checkpoint != first:
            raise CheckpointConflict(
                f"materialization {materialization!r}: keys {key_range} join {first_range} and {piece}, "
                "which stopped at different checkpoints; open the ranges as they were, "
                "let them reach the same one, then join them"
            )
    return first


def _owned_pieces(rows: Sequence[CheckpointRow], key_range: KeyRange) -> list[tuple[KeyRange, JsonObject]]:
    """Returns the parts of a range in order, each with the checkpoint of its last owner."""
    pieces: list[tuple[KeyRange, JsonObject]] = []
    for row in sorted(rows, key=lambda row: -row.opened):
        part = row.key_range.intersection(key_range)
        if part is not None:
            owned = part.without(piece for piece, _ in pieces)
            pieces += [(piece, row.checkpoint) for piece in owned]
    pieces += [(piece, START) for piece in key_range.without(piece for piece, _ in pieces)]
    return sorted(pieces, key=lambda piece: piece[0])


def _this_process() -> str:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f"process {os.getpid()} on {socket.gethostname()} at {now} ({secrets.token_hex(4)})"
