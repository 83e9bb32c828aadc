"""A staging table of one connection."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.connectors.sql.database import Database


class StagingTable:
    """Created when it is first needed, and emptied when it is needed again: many a stream ends before
    that."""

    def __init__(self, database: Database, name: str, create: str, *, is_joined: bool = True) -> None:
        self._database, self._name, self._create, self._is_joined = database, name, create, is_joined
        self._exists = self._is_stale = False
        self.rows = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        if not len(columns[0]):
            return
        if not self._exists:
            self._database.execute(self._create)
            self._exists = True
        if self._is_stale:
            self._database.clear(self._name)
            self._is_stale = False
        self._database.stage(self._name, columns, is_joined=self._is_joined)
        self.rows += len(columns[0])

    def forget(self) -> None:
        self._is_stale = self._is_stale or self.rows > 0
        self.rows = 0
