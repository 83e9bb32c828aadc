"""What the shared SQL code needs of a connection to an endpoint."""

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

    Parameters are written `$1`, `$2`, ... Errors are raised as `EndpointUnavailable` where the same
    statement may work later, and as `EndpointError` where it will not.
    """

    @abstractmethod
    def query(self, statement: str, *parameters: Any) -> list[Sequence[Any]]:
        """The rows of a statement."""

    @abstractmethod
    def execute(self, statement: str, *parameters: Any) -> int:
        """How many rows a statement changed."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Commits at the end of the block, or rolls back if it raises."""

    @abstractmethod
    def lock_opens(self, materialization: str) -> None:
        """Within a transaction: until it ends, no other instance opens a range of this materialization."""

    @abstractmethod
    def lock_applies(self) -> None:
        """Within a transaction: until it ends, no other instance changes tables of this endpoint.

        From then on, a statement that would wait long for a lock gives up instead, as something that may
        be tried again: others would queue up behind it.
        """

    @abstractmethod
    def table(self, path: Sequence[str]) -> Table | None:
        """The table at this path, if there is one."""

    def check_rights(self, path: Sequence[str], *, exists: bool) -> None:  # noqa: B027 - most need none
        """Refuses a table that this user may not read, write, or create."""

    @abstractmethod
    def durability(self) -> Durability:
        """Says what keeps the rows that are committed."""

    def has_rows(self, path: Sequence[str]) -> bool:
        ((found,),) = self.query(f"SELECT EXISTS (SELECT 1 FROM {quote_path(path)})")  # noqa: S608
        return bool(found)

    @abstractmethod
    def stage(self, table: str, columns: Sequence[pa.Array], *, is_joined: bool = True) -> None:
        """Appends rows to a staging table of this connection; nobody else must notice, nor wait.

        `is_joined`: a statement will look for them in another table, so that it matters how many they are.
        """

    def clear(self, table: str) -> None:
        """Empties a staging table."""
        self.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours

    def can_copy(self, path: Sequence[str]) -> bool:  # noqa: ARG002
        """Whether `copy` does to this table what an INSERT of the same rows does."""
        return False

    def copy(self, path: Sequence[str], names: Sequence[str], rows: Sequence[pa.RecordBatch]) -> bool:
        """Within a transaction: puts rows into a table; or none, and False, if a key of theirs is there."""
        raise NotImplementedError

    @abstractmethod
    def fetch(self, query: str, keys: pa.Schema) -> Iterator[tuple[pa.RecordBatch, pa.StringArray]]:
        """The rows of a query, a message's worth at a time: columns of this schema, then a document."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
