"""What differs between SQL endpoints in how the same thing is written."""

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
    """The spelling of one endpoint. Identifiers are always quoted, in the standard's double quotes."""

    name: str
    limits: RowLimits = RowLimits()
    """Values that columns of the types from `column_type` cannot store."""

    @abstractmethod
    def column_type(self, field_type: FieldType) -> str:
        """How a new column of this type is declared."""

    @abstractmethod
    def field_type(self, declared: str) -> FieldType | None:
        """What a column declared like this holds; `None` if it is nothing that fields can be stored in."""

    @abstractmethod
    def staged_type(self, field_type: FieldType) -> str:
        """How the column of a staging table is declared that takes a field as Arrow brings it."""

    @abstractmethod
    def stored(self, staged: str, declared: str) -> str:
        """The expression that turns a staged column into what a column declared like this holds."""

    def takes(self, declared: str, field_type: FieldType) -> bool:  # noqa: ARG002
        """Whether `Database.copy` can put a field into a column declared like this."""
        return False

    @abstractmethod
    def loaded(self, stored: str, field_type: FieldType) -> str:
        """The expression that reads a stored column in the form that Arrow can take."""

    @abstractmethod
    def name_problem(self, name: str) -> str | None:
        """Why no column can have this name, if so."""

    @abstractmethod
    def same_name(self, name: str) -> str:
        """Two columns whose names are equal after this cannot be in one table."""

    def column(self, table: Table, name: str) -> Column | None:
        """The column of a table that goes by this name, however it is spelled there."""
        for column in table.columns.values():
            if self.same_name(column.name) == self.same_name(name):
                return column
        return None

    def same_names(self, names: Iterable[str]) -> set[str]:
        return {self.same_name(name) for name in names}

    @abstractmethod
    def widen(self, table: str, column: Column, wider: FieldType) -> list[str]:
        """Statements that change a column's type and keep its values. `table` is quoted."""

    @abstractmethod
    def mark(self, path: Sequence[str], table: Table | None, owner: Owner) -> list[str]:
        """Statements that let a table say whose it is, in something that lives and dies with it.

        `table` is how it was before, if it was there.
        """

    @abstractmethod
    def drop_not_null(self, table: str, column: Column) -> list[str]:
        """Statements that let a column be null. `table` is quoted."""
