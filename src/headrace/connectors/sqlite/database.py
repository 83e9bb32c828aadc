"""A connection to an SQLite database, with its errors translated to our two kinds."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.connectors.sql.database import Database
from headrace.connectors.sql.dialect import quote
from headrace.connectors.sql.tables import Column, Table
from headrace.connectors.sqlite.dialect import owner_in
from headrace.errors import ConfigError, EndpointError, EndpointUnavailable
from headrace.protocol.messages import Durability, Survival
from headrace.protocol.packed_rows import from_tuple_type, to_tuple_type, tuple_type

MIN_VERSION = (3, 35, 0)  # the first with ALTER TABLE ... DROP COLUMN

# Another shard's commit is a burst; one that holds its lock longer than this has stopped.
BUSY_SECONDS = 60.0

# In one Loaded; the row that exceeds the characters is its last.
ROWS_AT_ONCE = 1000
CHARACTERS_AT_ONCE = 4 * 1024 * 1024

_TRANSIENT = {
    "SQLITE_BUSY",
    "SQLITE_LOCKED",
    "SQLITE_IOERR",
    "SQLITE_FULL",
    "SQLITE_CANTOPEN",
    "SQLITE_PROTOCOL",
}


class SqliteDatabase(Database):
    """A connection to a database file."""

    def __init__(self, path: str, look_only: bool = False) -> None:
        if sqlite3.sqlite_version_info < MIN_VERSION:
            needed = ".".join(map(str, MIN_VERSION))
            raise ConfigError(f"SQLite {sqlite3.sqlite_version} is too old: {needed} or newer is needed")
        if path != ":memory:" and not Path(path).absolute().parent.is_dir():
            raise ConfigError(f"path: the folder of {path!r} does not exist; create it first")
        # To look at what is not there must not create it.
        opened = ":memory:" if look_only and not Path(path).exists() else path
        with _errors(path):
            self._connection = sqlite3.connect(
                opened, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
        self._path = path
        try:
            if look_only:
                self.query("PRAGMA query_only = ON")
            else:
                # WAL lets shards load while one commits; FULL makes a commit outlive the machine.
                self._use_wal()
                self.query("PRAGMA synchronous = FULL")
        except BaseException:
            self.close()
            raise

    def query(self, statement: str, *parameters: Any) -> list[Sequence[Any]]:
        with _errors(self._path):
            return self._connection.execute(statement, _numbered(parameters)).fetchall()

    def execute(self, statement: str, *parameters: Any) -> int:
        with _errors(self._path):
            return self._connection.execute(statement, _numbered(parameters)).rowcount

    def stage(self, table: str, columns: Sequence[pa.Array], *, is_joined: bool = True) -> None:  # noqa: ARG002
        for column in columns:
            _check_numbers(column)
        marks = ", ".join("?" * len(columns))
        # SQLite holds integers, reals and text; booleans become 0 and 1 by themselves.
        rows = zip(*(to_tuple_type(column).to_pylist() for column in columns), strict=True)
        with _errors(self._path):
            # Deferred: as only a temporary table is written, the database itself stays unlocked.
            self._connection.execute("BEGIN DEFERRED")
            self._connection.executemany(f"INSERT INTO {table} VALUES ({marks})", rows)  # noqa: S608
            self._connection.execute("COMMIT")

    def fetch(self, query: str, keys: pa.Schema) -> Iterator[tuple[pa.RecordBatch, pa.StringArray]]:
        with _errors(self._path):
            for rows in _batches(self._connection.execute(query)):
                documents = pa.array([row[-1] for row in rows], type=pa.string())
                yield _key_columns(rows, keys), documents

    def _use_wal(self) -> None:
        """Switches to WAL, with retries: unlike everything else, a change of the journal mode does not wait
        for others."""
        deadline = time.monotonic() + BUSY_SECONDS
        while self.query("PRAGMA journal_mode") != [("wal",)] and self._path != ":memory:":
            try:
                self.query("PRAGMA journal_mode = WAL")
            except EndpointUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    def durability(self) -> Durability:
        return Durability(Survival.PROCESS, "a database file on this host")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def lock_opens(self, materialization: str) -> None:
        """Does nothing: a write transaction of SQLite runs alone."""

    def lock_applies(self) -> None:
        """Does nothing, for the same reason."""

    def table(self, path: Sequence[str]) -> Table | None:
        schema, name = path
        columns: dict[str, Column] = {}
        keys: list[tuple[int, str]] = []
        for _, column, declared, not_null, _, key_position in self.query(
            f"PRAGMA {quote(schema)}.table_info({quote(name)})"
        ):
            columns[column] = Column(column, declared, nullable=not not_null and not key_position)
            if key_position:
                keys.append((key_position, column))
        if not columns:
            return None
        owner, folded = None, []
        for _, index, _, origin, _ in self.query(f"PRAGMA {quote(schema)}.index_list({quote(name)})"):
            owner = owner or owner_in(index)
            if origin == "pk":
                parts = self.query(f"PRAGMA {quote(schema)}.index_xinfo({quote(index)})")
                folded += [column for _, _, column, _, coll, is_key in parts if is_key and coll != "BINARY"]
        return Table(columns, tuple(column for _, column in sorted(keys)), tuple(folded), owner)

    def close(self) -> None:
        self._connection.close()


def _batches(cursor: sqlite3.Cursor) -> Iterator[list[Sequence[Any]]]:
    rows: list[Sequence[Any]] = []
    characters = 0
    for row in cursor:
        rows.append(row)
        characters += len(row[-1])
        if len(rows) >= ROWS_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield rows
            rows, characters = [], 0
    if rows:
        yield rows


def _numbered(parameters: Sequence[Any]) -> dict[str, Any]:
    """Rewrites `$1`, which is a named parameter to SQLite, called 1."""
    return {str(number): value for number, value in enumerate(parameters, start=1)}


def _check_numbers(column: pa.Array) -> None:
    if pa.types.is_floating(column.type) and pc.any(pc.is_nan(column)).as_py():
        raise EndpointError("a number is NaN, which SQLite would silently make null")


def _key_columns(rows: Sequence[Sequence[Any]], schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for position, field in enumerate(schema):
        kept_as = pa.int64() if pa.types.is_boolean(field.type) else tuple_type(field.type)
        column = pa.array([row[position] for row in rows], type=kept_as)
        columns.append(from_tuple_type(column, field))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if any(name.startswith(transient) for transient in _TRANSIENT):
            raise EndpointUnavailable(f"SQLite database {path}: {error} ({name})") from error
        raise EndpointError(f"SQLite database {path}: {error} ({name or type(error).__name__})") from error
