"""Inserts the new rows of a transaction: through a staging table, or directly into the table.

`INSERT ... ON CONFLICT` from a staging table is right whether a key is there or not, since loads may be
skipped. To copy rows into the table itself takes half as long, but fails at the first key that is there. So
the first rows are staged and looked up. If none is found, the rest is held, and copied in the commit; if that
fails after all, it is undone, and the rest is staged as well.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.connectors.sql.database import Database
from headrace.connectors.sql.staging import Staging
from headrace.connectors.sql.staging_table import StagingTable

# With one key in a hundred there already, one transaction in 150 takes them to be new; and a transaction
# that has no more than these gains nothing.
LOOKED_UP = 500
MOST_BYTES = 32 << 20  # held in memory; a transaction that has more is staged

# What was copied in vain stays in the table as dead rows, up to all of it. A stream that has a few keys again
# in nearly each transaction would do so every time.
_PAUSE = 100
_pauses: dict[tuple[str, ...], int] = {}
"""Counts, for each table, the transactions of this process that still do not copy to it: a stream may have
only one."""


class NewRows:
    """The rows of one binding that are to be inserted."""

    def __init__(self, database: Database, staging: Staging, materialization: str) -> None:
        self._database, self._staging = database, staging
        self._name = (materialization, *staging.binding.resource_path)
        self._staged = StagingTable(
            database, staging.insert_table, staging.create_insert_table, is_joined=False
        )
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._look_new: bool | None = None
        """None: this transaction has not yet seen enough rows."""

    def add(self, rows: pa.RecordBatch) -> None:
        if self._look_new is None:
            first = rows.slice(0, LOOKED_UP - self._staged.rows)
            self._staged.add(first.columns)
            rows = rows.slice(first.num_rows)
            if self._staged.rows >= LOOKED_UP:
                self._look_new = self._can_copy()
        if not self._look_new:
            self._staged.add(rows.columns)
        elif rows.num_rows:
            self._held.append(rows)
            self._held_bytes += rows.nbytes
            if self._held_bytes > MOST_BYTES:
                self._look_new = False
                self._stage_held()

    def insert(self) -> None:
        """Inserts the rows, within a transaction."""
        path = self._staging.binding.resource_path
        if self._held and not self._database.copy(path, self._staging.column_names, self._held):
            _pauses[self._name] = _PAUSE
            self._stage_held()
        if self._staged.rows:
            self._database.execute(self._staging.insert_statement)

    def forget(self) -> None:
        self._staged.forget()
        self._held.clear()
        self._held_bytes = 0
        self._look_new = None

    def _can_copy(self) -> bool:
        if self._staging.binding.delta_updates or not self._staging.is_kept_as_it_comes:
            return False
        if pause := _pauses.get(self._name, 0):
            _pauses[self._name] = pause - 1
            return False
        # Asked each time: what is true of the table may change while a stream is open.
        if not self._database.can_copy(self._staging.binding.resource_path):
            return False
        return not self._database.query(self._staging.stored_key_query)

    def _stage_held(self) -> None:
        for rows in self._held:
            self._staged.add(rows.columns)
        self._held.clear()
        self._held_bytes = 0
