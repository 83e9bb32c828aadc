"""Stages the rows of the current transaction until they are committed."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.sql.database import Database
from headrace.connectors.sql.dialect import Dialect
from headrace.connectors.sql.fence import Fence, FenceTable
from headrace.connectors.sql.new_rows import NewRows
from headrace.connectors.sql.staging import Staging
from headrace.connectors.sql.staging_table import StagingTable
from headrace.connectors.sql.tables import Table
from headrace.errors import EndpointError, EndpointUnavailable
from headrace.model.checkpoints import JsonObject
from headrace.model.materializations import Binding, Materialization
from headrace.protocol.messages import Load, Loaded, Store


class StagedRows:
    """Stages keys to load and rows to store, in staging tables of one connection."""

    def __init__(self, database: Database, dialect: Dialect, materialization: Materialization) -> None:
        self._database = database
        self._bindings = [
            _StagedBinding(
                database,
                Staging(index, binding, _existing_table(database, binding), dialect),
                materialization.name,
            )
            for index, binding in enumerate(materialization.bindings)
        ]

    def add_keys(self, load: Load) -> None:
        self._bindings[load.binding].keys.add(load.keys.columns)

    def load(self) -> Iterator[Loaded]:
        """Yields the documents of the staged keys, and forgets the keys."""
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
        rows = pa.RecordBatch.from_arrays(columns, names=[str(number) for number in range(len(columns))])
        if one.staging.binding.delta_updates or not pc.any(store.exists).as_py():
            one.inserts.add(rows)
            return
        one.updates.add(rows.filter(store.exists).columns)
        one.inserts.add(rows.filter(pc.invert(store.exists)))

    def commit(self, fences: FenceTable, fence: Fence, checkpoint: JsonObject) -> None:
        """Commits everything that was staged, and the checkpoint, in one transaction; or nothing."""
        with self._database.transaction():
            for one in self._bindings:
                one.apply()
            fences.commit(self._database, fence, checkpoint)
        for one in self._bindings:
            one.forget()


class _StagedBinding:
    """The staged keys and rows of one binding."""

    def __init__(self, database: Database, staging: Staging, materialization: str) -> None:
        self._database, self.staging = database, staging
        self.keys = StagingTable(database, staging.load_table, staging.create_load_table)
        self.updates = StagingTable(database, staging.update_table, staging.create_update_table)
        self.inserts = NewRows(database, staging, materialization)

    def apply(self) -> None:
        """Applies the staged rows, within a transaction."""
        if self.updates.rows:
            updated = self._database.execute(self.staging.update_statement)
            if updated != self.updates.rows:
                raise EndpointUnavailable(_rows_gone(self.staging.binding, updated, self.updates.rows))
        self.inserts.insert()

    def forget(self) -> None:
        self.updates.forget()
        self.inserts.forget()


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
