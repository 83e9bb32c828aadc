"""A connection to a PostgreSQL database, in Arrow both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from adbc_driver_postgresql import StatementOptions, dbapi

from headrace.connectors.postgres import failures
from headrace.connectors.postgres.connections import connect
from headrace.connectors.postgres.dialect import read_comment
from headrace.connectors.sql.database import Database
from headrace.connectors.sql.dialect import quote, quote_path
from headrace.connectors.sql.tables import Column, Table
from headrace.errors import EndpointError, HeadraceError
from headrace.protocol.messages import Durability, Survival
from headrace.protocol.packed_rows import from_tuple_type

SETTINGS = {
    # Longer than the next one, after which the holder of the lock is gone; then waiting is useless.
    "lock_timeout": "120s",
    # A process that was frozen between two statements of its commit holds locks that others wait for.
    "idle_in_transaction_session_timeout": "60s",
    # Casts from and to text depend on these.
    "TimeZone": "UTC",
    "DateStyle": "ISO",
}

# Where the server is set to less: a commit that is reported is on disk, and a large update joins in memory,
# which made it twice as fast.
_AT_LEAST = """
SELECT pg_catalog.set_config(name, least, false) FROM (VALUES
  ('synchronous_commit', 'on', pg_catalog.current_setting('synchronous_commit') = 'off'),
  ('work_mem', '64MB', pg_catalog.pg_size_bytes(pg_catalog.current_setting('work_mem')) < 64 * 1024 * 1024)
) AS setting (name, least, is_less) WHERE is_less
"""

# In one Loaded. A hint: the batch ends with the document that exceeds it.
_BATCH_BYTES = 4 * 1024 * 1024

# To the planner a table that was never analyzed has ten pages or more, so up to there nothing needs a
# better estimate than it makes by itself, and dead rows do no harm.
_SMALL_BYTES = 10 * 8192
_ROW_BYTES = 28  # what PostgreSQL adds to each row

# The first microsecond that a timestamp can hold, from 1970; what is earlier would be refused or, at the
# driver's own limit, turn into -infinity.
_FIRST_INSTANT = -210_866_803_200_000_000

_UNIQUE_VIOLATION = "23505"

_RIGHTS = {"table": ("SELECT", "INSERT", "UPDATE"), "schema": ("USAGE", "CREATE")}
_UNLOGGED = "u"
_TABLE_KINDS = {"r", "p"}  # ordinary and partitioned
_OTHER_KINDS = {"v": "a view", "m": "a materialized view", "f": "a foreign table"}

_DESCRIBE_TABLE = """
SELECT relation.relkind::text, relation.relpersistence::text,
  pg_catalog.pg_has_role(relation.relowner, 'USAGE'),
  COALESCE(pg_catalog.obj_description(relation.oid, 'pg_class'), ''),
  attribute.attname::text,
  pg_catalog.format_type(attribute.atttypid, attribute.atttypmod), attribute.attnotnull,
  COALESCE(NOT collating.collisdeterministic, false),
  CASE WHEN key.position < key.length THEN key.position END
FROM pg_catalog.pg_class AS relation
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
LEFT JOIN pg_catalog.pg_attribute AS attribute
  ON attribute.attrelid = relation.oid AND attribute.attnum > 0 AND NOT attribute.attisdropped
LEFT JOIN pg_catalog.pg_collation AS collating ON collating.oid = attribute.attcollation
LEFT JOIN LATERAL (
  SELECT pg_catalog.array_position(indkey::int2[], attribute.attnum) AS position, indnkeyatts AS length
  FROM pg_catalog.pg_index WHERE indrelid = relation.oid AND indisprimary
) AS key ON true
WHERE namespace.nspname = $1 AND relation.relname = $2
ORDER BY attribute.attnum
"""

# COPY knows no rules, is refused where rows are secured, and triggers of statements would be called for
# another one. Those of foreign keys are triggers too.
_CAN_COPY = """
SELECT 1 FROM pg_catalog.pg_class AS relation
JOIN pg_catalog.pg_namespace AS namespace ON namespace.oid = relation.relnamespace
WHERE namespace.nspname = $1 AND relation.relname = $2 AND relation.relkind = 'r'
  AND NOT (relation.relhasrules OR relation.relrowsecurity OR relation.relhastriggers)
"""


class PostgresDatabase(Database):
    """A session of a server, with its own temporary tables."""

    def __init__(self, url: str) -> None:
        # Bytes in each staging table, dead ones too.
        self._written: Counter[str] = Counter()
        with failures.connecting():
            self._connection = connect(url)
        try:
            changes = (
                f"pg_catalog.set_config('{name}', '{value}', false)" for name, value in SETTINGS.items()
            )
            self.query(f"SELECT {', '.join(changes)}")
            self.query(_AT_LEAST)
        except BaseException:
            self.close()
            raise

    def query(self, statement: str, *parameters: Any) -> list[Sequence[Any]]:
        # COPY, by which the driver would read, takes only some kinds of statements.
        options = {StatementOptions.USE_COPY.value: "false"}
        with failures.statements(), self._connection.cursor(adbc_stmt_kwargs=options) as cursor:
            cursor.execute(statement, parameters or None)
            return list(cursor.fetchall())

    def execute(self, statement: str, *parameters: Any) -> int:
        with failures.statements(), self._connection.cursor() as cursor:
            # Not `execute`, which does not count rows.
            cursor.executemany(statement, [parameters] if parameters else None)
            count: int = cursor.rowcount
            return count

    def stage(self, table: str, columns: Sequence[pa.Array], *, is_joined: bool = True) -> None:
        for column in columns:
            _check_instants(column)
        rows = pa.RecordBatch.from_arrays(list(columns), names=[f"c{n}" for n in range(len(columns))])
        with failures.statements(), self._connection.cursor() as cursor:
            cursor.adbc_ingest(table, rows, mode="append", temporary=True)
        before = self._written[table]
        self._written[table] += rows.nbytes + _ROW_BYTES * rows.num_rows
        if is_joined and before <= _SMALL_BYTES < self._written[table]:
            # The planner would take documents to be short, so their rows to be many, and read the whole
            # table for a few updates. Knowing how many fit a page, it can tell when there are more.
            self.execute(f"ANALYZE {table} (c0)")

    def clear(self, table: str) -> None:
        # Nobody vacuums a temporary table. To truncate it gives its space back, but costs a write to the
        # catalog, which is much for a few rows.
        if self._written[table] <= _SMALL_BYTES:
            super().clear(table)
        else:
            self.execute(f"TRUNCATE {table}")
            self._written[table] = 0

    def can_copy(self, path: Sequence[str]) -> bool:
        return bool(self.query(_CAN_COPY, *path))

    def copy(self, path: Sequence[str], names: Sequence[str], rows: Sequence[pa.RecordBatch]) -> bool:
        for batch in rows:
            for column in batch.columns:
                _check_instants(column)
        schema, table = path
        renamed = pa.Table.from_batches([batch.rename_columns(list(names)) for batch in rows])
        self.execute("SAVEPOINT headrace_copy")
        with failures.statements():
            try:
                with self._connection.cursor() as cursor:
                    cursor.adbc_ingest(table, renamed, mode="append", db_schema_name=schema)
            except dbapi.Error as error:
                if error.sqlstate != _UNIQUE_VIOLATION:
                    raise
                self.execute("ROLLBACK TO SAVEPOINT headrace_copy")
                return False
        return True

    def fetch(self, query: str, keys: pa.Schema) -> Iterator[tuple[pa.RecordBatch, pa.StringArray]]:
        options = {StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(_BATCH_BYTES)}
        with self._connection.cursor(adbc_stmt_kwargs=options) as cursor:
            with failures.statements():
                cursor.execute(query)
            with failures.reading():
                for rows in cursor.fetch_record_batch():
                    yield _key_columns(rows, keys), rows.column(len(keys))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        # By name, since the default can be changed: with an older snapshot, one who waited for
        # `lock_opens` would not see what was opened meanwhile.
        self.execute("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE")
        try:
            yield
        except BaseException:
            # If the connection is lost, the server rolls back by itself.
            with suppress(HeadraceError):
                self.execute("ROLLBACK")
            raise
        self.execute("COMMIT")

    def lock_opens(self, materialization: str) -> None:
        self._lock(f"headrace:{materialization}")

    def lock_applies(self) -> None:
        self.execute("SET LOCAL lock_timeout = '10s'")
        self._lock("headrace apply")

    def _lock(self, name: str) -> None:
        self.query(
            "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, 0))",
            name,
        )

    def durability(self) -> Durability:
        ((syncs,),) = self.query("SELECT pg_catalog.current_setting('fsync')")
        if syncs == "off":
            return Durability(Survival.PROCESS, "the write-ahead log of PostgreSQL (`fsync = off`)")
        return Durability(Survival.HOST, "the write-ahead log of PostgreSQL")

    def table(self, path: Sequence[str]) -> Table | None:
        rows = self.query(_DESCRIBE_TABLE, *path)
        if not rows:
            return None
        kind, persistence, is_owned, comment = rows[0][:4]
        if kind not in _TABLE_KINDS:
            what = _OTHER_KINDS.get(kind, "something else")
            raise EndpointError(f"{'.'.join(path)} is {what}, and only a table can be materialized into")
        if persistence == _UNLOGGED:
            table = quote_path(path)
            raise EndpointError(
                f"table {'.'.join(path)} is UNLOGGED, and empty after a crash of PostgreSQL: "
                f"ALTER TABLE {table} SET LOGGED"
            )
        columns = {
            name: Column(name, declared, nullable=not not_null)
            for *_, name, declared, not_null, _, _ in rows
            if name is not None  # of a table without columns
        }
        keys = sorted(
            (position, name, folds) for *_, name, _, _, folds, position in rows if position is not None
        )
        written, owner = read_comment(comment)
        folded = tuple(name for _, name, folds in keys if folds)
        primary_key = tuple(name for _, name, _ in keys)
        return Table(columns, primary_key, folded, owner, is_owned, written)

    def check_rights(self, path: Sequence[str], *, exists: bool) -> None:
        schema, _ = path
        kind, asked, written = "table", quote_path(path), quote_path(path)
        if not exists:
            kind, asked, written = "schema", schema, quote(schema)
            if not self.query("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1", schema):
                raise EndpointError(f"schema {written} does not exist: CREATE SCHEMA {written}")
        ask = f"SELECT pg_catalog.has_{kind}_privilege($1, $2)"
        lacking = ", ".join(right for right in _RIGHTS[kind] if not self.query(ask, asked, right)[0][0])
        if lacking:
            ((role,),) = self.query("SELECT current_user::text")
            raise EndpointError(
                f"role {role!r} lacks {lacking} on {kind} {written}: "
                f"GRANT {lacking} ON {kind.upper()} {written} TO {quote(role)}"
            )

    def close(self) -> None:
        self._connection.close()


def _check_instants(column: pa.Array) -> None:
    if not pa.types.is_timestamp(column.type):
        return
    earliest = pc.min(column)
    if earliest.is_valid and earliest.value < _FIRST_INSTANT:
        raise EndpointError("a date-time is before 4714 BC, where those of PostgreSQL begin")


def _key_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [from_tuple_type(rows.column(position), field) for position, field in enumerate(schema)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
