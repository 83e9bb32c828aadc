"""The interface of a connection to an endpoint, for the shared SQL code."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa

from headrace.connectors.sql.dialect import quote_path
from headrace.connectors.sql.tables import Table
from headrace.protocol.messages import Durability


class Database(ABC):
    """One connection. Statements commit by themselves outside of `transaction`.

    Parameters are written `$1`, `$2`, ... Errors are raised as `EndpointUnavailable` if the same statement
    may work later, and as `EndpointError` if it will not.
    """

    @abstractmethod
    def query(self, statement: str, *parameters: Any) -> list[Sequence[Any]]:
        """Returns the rows of a statement."""

    @abstractmethod
    def execute(self, statement: str, *parameters: Any) -> int:
        """Returns how many rows a statement changed."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Commits at the end of the block, or rolls back if it raises."""

    @abstractmethod
    def lock_opens(self, materialization: str) -> None:
        """Prevents other instances from opening a range of this materialization until the current transaction
        ends."""

    @abstractmethod
    def lock_applies(self) -> None:
        """Prevents other instances from changing tables of this endpoint until the current transaction ends.

        From then on, a statement that would wait long for a lock fails with a `Transient` error instead:
        others would queue up behind it.
        """

    @abstractmethod
    def table(self, path: Sequence[str]) -> Table | None:
        """Returns the table at this path, or None if it does not exist."""

    def check_rights(self, path: Sequence[str], *, exists: bool) -> None:  # noqa: B027 - most need none
        """Refuses a table that this user may not read, write, or create."""

    @abstractmethod
    def durability(self) -> Durability:
        """States what the committed rows survive."""

    def has_rows(self, path: Sequence[str]) -> bool:
        ((found,),) = self.query(f"SELECT EXISTS (SELECT 1 FROM {quote_path(path)})")  # noqa: S608
        return bool(found)

    @abstractmethod
    def stage(self, table: str, columns: Sequence[pa.Array], *, is_joined: bool = True) -> None:
        """Appends rows to a staging table of this connection, without affecting or blocking others.

        `is_joined`: a statement will join them with another table, so their number matters to the query
        planner.
        """

    def clear(self, table: str) -> None:
        """Empties a staging table."""
        self.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours

    def can_copy(self, path: Sequence[str]) -> bool:  # noqa: ARG002
        """Returns whether `copy` has the same effect on this table as an INSERT of the same rows."""
        return False

    def copy(self, path: Sequence[str], names: Sequence[str], rows: Sequence[pa.RecordBatch]) -> bool:
        """Copies rows into a table, within a transaction; copies none and returns False if one of their keys
        exists."""
        raise NotImplementedError

    @abstractmethod
    def fetch(self, query: str, keys: pa.Schema) -> Iterator[tuple[pa.RecordBatch, pa.StringArray]]:
        """Yields the rows of a query in chunks of a message's size, with columns of this schema, then a
        document."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
