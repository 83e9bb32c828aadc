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
        self._staging = [
            Staging(index, binding, _existing_table(database, binding), dialect)
            for index, binding in enumerate(materialization.bindings)
        ]
        self._staged: dict[str, int] = {}
        for staging in self._staging:
            for statement in staging.create_statements:
                database.execute(statement)

    def add_keys(self, load: Load) -> None:
        self._stage(self._staging[load.binding].load_table, load.keys.columns)

    def load(self) -> Iterator[Loaded]:
        """The documents of the staged keys, which are then forgotten."""
        for staging in self._staging:
            if self._staged.get(staging.load_table):
                for keys, documents in self._database.fetch(staging.load_query, staging.binding.key_schema):
                    yield Loaded(staging.index, keys, documents)
                self._clear(staging.load_table)

    def add_rows(self, store: Store) -> None:
        columns = [*store.keys.columns, *store.values.columns]
        if store.documents is not None:
            columns.append(store.documents)
        staging = self._staging[store.binding]
        if staging.binding.delta_updates:
            self._stage(staging.insert_table, columns)
            return
        rows = pa.RecordBatch.from_arrays(columns, names=[str(number) for number in range(len(columns))])
        self._stage(staging.update_table, rows.filter(store.exists).columns)
        self._stage(staging.insert_table, rows.filter(pc.invert(store.exists)).columns)

    def commit(self, fences: FenceTable, fence: Fence, checkpoint: JsonObject) -> None:
        """Everything that was staged, and the checkpoint, in one transaction; or nothing."""
        with self._database.transaction():
            for staging in self._staging:
                if rows := self._staged.get(staging.update_table):
                    updated = self._database.execute(staging.update_statement)
                    if updated != rows:
                        raise EndpointUnavailable(_rows_gone(staging.binding, updated, rows))
                    self._clear(staging.update_table)
                if self._staged.get(staging.insert_table):
                    self._database.execute(staging.insert_statement)
                    self._clear(staging.insert_table)
            fences.commit(self._database, fence, checkpoint)

    def _stage(self, table: str, columns: Sequence[pa.Array]) -> None:
        rows = len(columns[0])
        if rows:
            self._database.stage(table, columns)
            self._staged[table] = self._staged.get(table, 0) + rows

    def _clear(self, table: str) -> None:
        self._database.clear(table)
        del self._staged[table]


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
