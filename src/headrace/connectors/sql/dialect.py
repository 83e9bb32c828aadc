"""The differences between SQL endpoints in how the same statement is written."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence

from headrace.connectors.sql.tables import Column, Table
from headrace.model.field_types import FieldType
from headrace.model.ownership import Owner
from headrace.protocol.messages import RowLimits


def quote(identifier: str) -> str:
    return '"' + identifier.replace('"', '""') + '"'


def quote_path(path: Sequence[str]) -> str:
    return ".".join(quote(part) for part in path)


class Dialect(ABC):
    """The syntax of one endpoint. Identifiers are always quoted, in the standard's double quotes."""

    name: str
    limits: RowLimits = RowLimits()
    """Values that columns of the types from `column_type` cannot store."""

    @abstractmethod
    def column_type(self, field_type: FieldType) -> str:
        """Returns the declaration of a new column of this type."""

    @abstractmethod
    def field_type(self, declared: str) -> FieldType | None:
        """Returns the type of a column with this declaration; `None` if no field can be stored in it."""

    @abstractmethod
    def staged_type(self, field_type: FieldType) -> str:
        """Returns the declaration of a staging column that takes a field in Arrow's representation."""

    @abstractmethod
    def stored(self, staged: str, declared: str) -> str:
        """Returns the expression that converts a staged column for a column with this declaration."""

    def takes(self, declared: str, field_type: FieldType) -> bool:  # noqa: ARG002
        """Returns whether `Database.copy` can store a field in a column with this declaration."""
        return False

    @abstractmethod
    def loaded(self, stored: str, field_type: FieldType) -> str:
        """Returns the expression that reads a stored column in a form that Arrow can take."""

    @abstractmethod
    def name_problem(self, name: str) -> str | None:
        """Returns why no column can have this name; empty if it is valid."""

    @abstractmethod
    def same_name(self, name: str) -> str:
        """Normalizes a name: two columns whose names are equal after this cannot be in one table."""

    def column(self, table: Table, name: str) -> Column | None:
        """Returns the column of a table with this name, however it is spelled there."""
        for column in table.columns.values():
            if self.same_name(column.name) == self.same_name(name):
                return column
        return None

    def same_names(self, names: Iterable[str]) -> set[str]:
        return {self.same_name(name) for name in names}

    @abstractmethod
    def widen(self, table: str, column: Column, wider: FieldType) -> list[str]:
        """Returns the statements that change a column's type and keep its values. `table` is quoted."""

    @abstractmethod
    def mark(self, path: Sequence[str], table: Table | None, owner: Owner) -> list[str]:
        """Returns the statements that record a table's owner, in something that is dropped and restored
        together with the table.

        `table` is its state before, if it existed.
        """

    @abstractmethod
    def drop_not_null(self, table: str, column: Column) -> list[str]:
        """Returns the statements that make a column nullable. `table` is quoted."""
