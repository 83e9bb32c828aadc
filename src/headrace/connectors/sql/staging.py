"""Staging tables hold keys to load and rows to store, so that each kind is one statement.

They are temporary, so writing to them locks nothing that others need and a crash leaves nothing behind.
What they hold reaches the table in the burst of statements that is the commit. Their columns are
numbered, which leaves every name to the binding's fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.connectors.sql.dialect import Dialect, quote, quote_path
from headrace.connectors.sql.tables import Table, WantedColumn, wanted_table
from headrace.errors import EndpointError
from headrace.model.materializations import Binding


@dataclass(frozen=True)
class Staging:
    """The statements for one binding."""

    index: int
    binding: Binding
    table: Table
    dialect: Dialect

    def __post_init__(self) -> None:
        missing = [
            column.name for column in self._columns if not self.dialect.column(self.table, column.name)
        ]
        if missing:
            raise EndpointError(
                f"table {'.'.join(self.binding.resource_path)} has no column {missing[0]!r}: "
                "apply the materialization before it is opened"
            )

    @property
    def load_table(self) -> str:
        return f"headrace_load_{self.index}"

    @property
    def insert_table(self) -> str:
        return f"headrace_insert_{self.index}"

    @property
    def update_table(self) -> str:
        return f"headrace_update_{self.index}"

    @property
    def create_load_table(self) -> str:
        return self._create(self.load_table, self._columns[: len(self.binding.keys)])

    @property
    def create_insert_table(self) -> str:
        return self._create(self.insert_table, self._columns)

    @property
    def create_update_table(self) -> str:
        return self._create(self.update_table, self._columns)

    @property
    def load_query(self) -> str:
        """Returns the query for keys and documents of the staged keys that exist."""
        keys = ", ".join(
            self.dialect.loaded(f"staged.c{number}", field.type)
            for number, field in enumerate(self.binding.keys)
        )
        assert self.binding.document is not None
        document = self.dialect.loaded(f"stored.{quote(self.binding.document)}", self._columns[-1].type)
        return (
            f"SELECT {keys}, {document} FROM {self.load_table} AS staged"  # noqa: S608 - names are quoted
            f" JOIN {self._path} AS stored ON {self._same_key}"
        )

    @property
    def insert_statement(self) -> str:
        """Returns the statement that inserts new rows, or updates one that exists after all, since loads may
        be skipped."""
        names = ", ".join(quote(column.name) for column in self._columns)
        # SQLite takes ON CONFLICT for a join condition unless WHERE comes between.
        text = (
            f"INSERT INTO {self._path} ({names})"  # noqa: S608
            f" SELECT {', '.join(self._stored_values)} FROM {self.insert_table} AS staged WHERE true"
        )
        if self.binding.delta_updates:
            return text
        keys = ", ".join(quote(field.name) for field in self.binding.keys)
        changes = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in self._value_names)
        return f"{text} ON CONFLICT ({keys}) DO UPDATE SET {changes}"

    @property
    def stored_key_query(self) -> str:
        """Returns the query that has a row if a key of the rows staged for insertion exists already."""
        return (
            f"SELECT 1 FROM {self.insert_table} AS staged"  # noqa: S608
            f" JOIN {self._path} AS stored ON {self._same_key} LIMIT 1"
        )

    @property
    def column_names(self) -> list[str]:
        """Returns the names of the table's columns, in the order in which rows are staged."""
        return [column.name for column in self._columns]

    @property
    def is_kept_as_it_comes(self) -> bool:
        """Returns whether each column of the table takes Arrow's representation without a cast."""
        return all(self.dialect.takes(self._declared(column), column.type) for column in self._columns)

    @property
    def update_statement(self) -> str:
        values = self._stored_values[len(self.binding.keys) :]
        changes = ", ".join(
            f"{quote(name)} = {value}" for name, value in zip(self._value_names, values, strict=True)
        )
        return (
            f"UPDATE {self._path} AS stored SET {changes}"  # noqa: S608
            f" FROM {self.update_table} AS staged WHERE {self._same_key}"
        )

    @cached_property
    def _columns(self) -> Sequence[WantedColumn]:
        return wanted_table(self.binding).columns

    @property
    def _value_names(self) -> list[str]:
        return [column.name for column in self._columns[len(self.binding.keys) :]]

    @property
    def _stored_values(self) -> list[str]:
        return [
            self.dialect.stored(f"staged.c{number}", self._declared(column))
            for number, column in enumerate(self._columns)
        ]

    def _declared(self, column: WantedColumn) -> str:
        stored = self.dialect.column(self.table, column.name)
        assert stored is not None  # or this would not have been made
        return stored.declared

    @property
    def _path(self) -> str:
        return quote_path(self.binding.resource_path)

    @property
    def _same_key(self) -> str:
        return " AND ".join(
            f"stored.{quote(field.name)} = staged.c{number}" for number, field in enumerate(self.binding.keys)
        )

    def _create(self, table: str, columns: Sequence[WantedColumn]) -> str:
        body = ", ".join(
            f"c{number} {self.dialect.staged_type(column.type)}" for number, column in enumerate(columns)
        )
        return f"CREATE TEMPORARY TABLE {table} ({body})"
