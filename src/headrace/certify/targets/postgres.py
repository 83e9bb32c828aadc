"""PostgreSQL: a table for each lane, in a database that others may use too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, ClassVar

from adbc_driver_postgresql import dbapi

from headrace.certify.targets.documents_of import DOCUMENT, viewed
from headrace.certify.targets.proxied import through_proxy
from headrace.certify.targets.steady import steadily
from headrace.certify.targets.target import COPIES, SAVED, VIEW, Place, Rows, Target
from headrace.connectors.config import read_config
from headrace.connectors.postgres.config import PostgresEndpoint
from headrace.connectors.postgres.connection_url import connection_url
from headrace.connectors.postgres.database import PostgresDatabase
from headrace.connectors.sql.dialect import quote, quote_path
from headrace.connectors.sql.fence import CHECKPOINTS_TABLE

_PORT = 5432


class PostgresTarget(Target):
    """Copies are tables beside the lane's: of its rows, and of its checkpoints and fences."""

    name = "postgres"
    commits_in_tasks: ClassVar[bool] = True
    can_restore = True

    def __init__(self, config: Mapping[str, Any]) -> None:
        """The connector's, of its endpoint."""
        self._config = self._reached = dict(config)
        endpoint = read_config(PostgresEndpoint, config, "endpoint")
        self._url, self._schema = connection_url(endpoint), endpoint.schema_name

    def check(self) -> None:
        with self._transaction():
            pass

    def versions(self) -> Mapping[str, str]:
        with self._transaction() as database:
            return {"postgres server": str(database.query("SELECT current_setting('server_version')")[0][0])}

    @contextmanager
    def running(self) -> Iterator[None]:
        with through_proxy(self._config, _PORT) as (self.proxy, self._reached):
            yield

    def place(self, lane: str) -> Place:
        return Place(
            {"connector": "postgres", "config": self._reached},
            {"resource": {"table": _table(lane)}, "fields": {"include": [DOCUMENT]}},
        )

    def read(self, lane: str) -> Mapping[str, Rows]:
        return {VIEW: steadily(lambda: self._read(lane))}

    def _read(self, lane: str) -> Rows:
        table, *_ = self._tables(lane)
        with dbapi.connect(self._url) as database, database.cursor() as cursor:
            cursor.execute("SELECT to_regclass($1)::text", (table,))
            if cursor.fetchall()[0][0] is None:
                return Rows()
            cursor.execute(f"SELECT {quote(DOCUMENT)}::text FROM {table}")  # noqa: S608 - quoted names
            return viewed({DOCUMENT: text} for (text,) in cursor.fetchall())

    def save(self, lane: str, copy: str = SAVED) -> None:
        table, rows, fences = self._tables(lane, copy)
        with self._transaction() as database:
            _drop(database, rows, fences)
            if _is_there(database, table):
                database.execute(f"CREATE TABLE {rows} AS TABLE {table}")
                database.execute(f"CREATE TABLE {fences} (LIKE {self._checkpoints})")
                self._copy_checkpoints(database, lane, self._checkpoints, fences)

    def restore(self, lane: str, copy: str = SAVED) -> None:
        """With the checkpoints, which a backup of the database has too."""
        table, rows, fences = self._tables(lane, copy)
        with self._transaction() as database:
            self._forget_checkpoints(database, lane)
            if _is_there(database, rows):
                database.execute(f"TRUNCATE {table}")
                database.execute(f"INSERT INTO {table} TABLE {rows}")
                self._copy_checkpoints(database, lane, fences, self._checkpoints)
            else:
                _drop(database, table)

    def remove(self, lane: str) -> None:
        with self._transaction() as database:
            _drop(database, *(table for copy in COPIES for table in self._tables(lane, copy)))
            self._forget_checkpoints(database, lane)

    def _tables(self, lane: str, copy: str = SAVED) -> tuple[str, str, str]:
        """The lane's, and a copy of its rows and of its checkpoints."""
        table = _table(lane)
        return self._path(table), self._path(f"{table}_{copy}_rows"), self._path(f"{table}_{copy}_fences")

    def _path(self, table: str) -> str:
        return quote_path((self._schema, table))

    @property
    def _checkpoints(self) -> str:
        return self._path(CHECKPOINTS_TABLE)

    @contextmanager
    def _transaction(self) -> Iterator[PostgresDatabase]:
        with closing(PostgresDatabase(self._url)) as database, database.transaction():
            yield database

    def _copy_checkpoints(self, database: PostgresDatabase, lane: str, source: str, target: str) -> None:
        database.execute(f"INSERT INTO {target} SELECT * FROM {source} WHERE materialization = $1", lane)  # noqa: S608

    def _forget_checkpoints(self, database: PostgresDatabase, lane: str) -> None:
        if _is_there(database, self._checkpoints):
            database.execute(f"DELETE FROM {self._checkpoints} WHERE materialization = $1", lane)  # noqa: S608


def _table(lane: str) -> str:
    return f"headrace_certify_{lane.replace('-', '_')}"


def _is_there(database: PostgresDatabase, table: str) -> bool:
    return database.query("SELECT to_regclass($1)::text", table)[0][0] is not None


def _drop(database: PostgresDatabase, *tables: str) -> None:
    database.execute(f"DROP TABLE IF EXISTS {', '.join(tables)}")
