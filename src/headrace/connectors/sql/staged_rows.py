"""The rows of the transaction at hand, staged until they are committed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.sql.database import Database
from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.fence import Fence, FenceTable
from headrace.connectors.sql.staging import Staging
from headrace.connectors.sql.tables import Table
from headrace.errors import EndpointError, EndpointUnavailable
from headrace.model.checkpoints import JsonObject
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.messages import Load, Loaded, Store


class StagedRows:
    """Keys to load and rows to store, in staging tables of one connection."""

    def __init__(self, database: Database, dialect: Dialect, materialization: Materialization) -> None:
        self._database = database
        self._bindings = [
            _StagedBinding(database, Staging(index, binding, _existing_table(database, binding), dialect))
            for index, binding in enumerate(materialization.bindings)
        ]

    def add_keys(self, load: Load) -> None:
        self._bindings[load.binding].keys.add(load.keys.columns)

    def load(self) -> Iterator[Loaded]:
        """The documents of the staged keys, which are then forgotten."""
        for index, one in enumerate(self._bindings):
            if one.keys.rows:
                binding = one.staging.binding
                for keys, documents in self._database.fetch(one.staging.load_query, binding.key_schema):
                    yield Loaded(index, keys, documents)
                one.keys.forget()

    def add_rows(self, store: Store) -> None:
        columns = [*store.keys.columns, *store.values.columns]
        if store.documents is not None:
            columns.append(store.documents)
        one = self._bindings[store.binding]
        if one.staging.binding.delta_updates:
            one.inserts.add(columns)
            return
        rows = pa.RecordBatch.from_arrays(columns, names=[str(number) for number in range(len(columns))])
        one.updates.add(rows.filter(store.exists).columns)
        one.inserts.add(rows.filter(pc.invert(store.exists)).columns)

    def commit(self, fences: FenceTable, fence: Fence, checkpoint: JsonObject) -> None:
        """Everything that was staged, and the checkpoint, in one transaction; or nothing."""
        with self._database.transaction():
            for one in self._bindings:
                one.apply()
            fences.commit(self._database, fence, checkpoint)
        for one in self._bindings:
            one.forget()


class _StagedBinding:
    """The staging tables of one binding."""

    def __init__(self, database: Database, staging: Staging) -> None:
        self._database, self.staging = database, staging
        self.keys = _StagingTable(database, staging.load_table, staging.create_load_table)
        self.updates = _StagingTable(database, staging.update_table, staging.create_update_table)
        self.inserts = _StagingTable(
            database, staging.insert_table, staging.create_insert_table, is_joined=False
        )

    def apply(self) -> None:
        """Within a transaction."""
        if self.updates.rows:
            updated = self._database.execute(self.staging.update_statement)
            if updated != self.updates.rows:
                raise EndpointUnavailable(_rows_gone(self.staging.binding, updated, self.updates.rows))
        if self.inserts.rows:
            self._database.execute(self.staging.insert_statement)

    def forget(self) -> None:
        self.updates.forget()
        self.inserts.forget()


class _StagingTable:
    """Made when it is first needed, and emptied when it is needed again: many a stream ends before that."""

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


def _existing_table(database: Database, binding: Binding) -> Table:
    table = database.table(binding.resource_path)
    if table is None:
        raise EndpointError(
            f"there is no table {'.'.join(binding.resource_path)}: "
            "apply the materialization before it is opened"
        )
    return table


def _rows_gone(binding: Binding, updated: int, staged: int) -> str:
    return (
        f"{staged - updated} of {staged} rows of {'.'.join(binding.resource_path)} are gone that the runtime "
        "said exist: somebody else deletes from this table"
    )
