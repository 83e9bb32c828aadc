"""The orders that `benchmarks.pipeline` materializes: a collection, and what a view of it has to hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from adbc_driver_postgresql import dbapi
from numpy.typing import NDArray

from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.ingest.iceberg.tables import Tables
from headrace.model.collections import Collection
from headrace.wal.batches import PLACE_FIELDS

ORDERS = Collection(
    "orders",
    ("/id",),
    {
        "type": "object",
        "required": ["id"],
        "properties": {
            "id": {"type": "integer"},
            "customer": {"type": "string"},
            "status": {"type": "string"},
            "amount": {"type": "number"},
            "quantity": {"type": "integer"},
            "updated_at": {"type": "string", "format": "date-time"},
        },
    },
)
TABLE = "orders"
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("status", pa.string()),
        ("amount", pa.float64()),
        ("quantity", pa.int64()),
        ("updated_at", pa.timestamp("us", "UTC")),
    ]
)
DECLARED = {
    "id": "BIGINT",
    "customer": "TEXT",
    "status": "TEXT",
    "amount": "DOUBLE PRECISION",
    "quantity": "BIGINT",
    "updated_at": "TIMESTAMPTZ",
}
VALUES = [name for name in DECLARED if name != "id"]
FILES_PER_EPOCH = 2
EPOCHS = 4

_ROWS_PER_WRITE = 1_000
_FIRST_INSTANT = 1_790_000_000_000_000
_STATUSES = np.array(["placed", "paid", "packed", "shipped", "delivered"])
_CHECKSUM = f"""
SELECT count(*), count(DISTINCT id), sum(hashtextextended(
  concat_ws('|', id, {", ".join(VALUES[:-1])}, extract(epoch FROM updated_at)), 0)::numeric)::text
FROM {{table}}"""


@dataclass(frozen=True)
class Content:
    """Of a table; equal if the tables have the same rows, but for odds of 1 in 2**64."""

    rows: int
    keys: int
    checksum: str


class Orders:
    """A collection in a folder, which rows are added to, each time so many epochs of so many files."""

    def __init__(self, folder: Path, rows: int, keys: int, seed: int = 0) -> None:
        folder.mkdir(parents=True)
        self.rows, self.keys = rows, keys
        self.catalog: CatalogSettings = embedded_catalog(folder)
        self._tables = Tables(self.catalog)
        self._draw = np.random.default_rng(seed)
        self._lsn = 1
        self._latest: pa.Table | None = None
        self._files: list[str] = []

    def add_inserts(self) -> None:
        """Each epoch has keys of its own: a row that is not the first of its key comes soon after it."""
        for epoch in range(EPOCHS):
            own = np.arange(epoch * self.keys // EPOCHS, (epoch + 1) * self.keys // EPOCHS)
            self._add(self._draw.permutation(np.resize(own, self.rows // EPOCHS)))

    def add_updates(self) -> None:
        """Any epoch may have any of the keys that are there."""
        for _ in range(EPOCHS):
            self._add(self._draw.integers(0, self.keys, self.rows // EPOCHS))

    def add_commits(self, count: int, rows: int) -> None:
        """So many files with so many rows in each, for epochs of one file."""
        for _ in range(count):
            self._append(self._draw.integers(0, self.keys, rows))

    def chunks(self, epochs: range) -> Iterator[pa.Table]:
        """What each of these epochs reads, from the same files."""
        for epoch in epochs:
            chosen = self._files[epoch * FILES_PER_EPOCH : (epoch + 1) * FILES_PER_EPOCH]
            yield pa.concat_tables(pq.read_table(path) for path in chosen)

    def expected(self, url: str) -> Content:
        """By Arrow and COPY alone, into a table of its own."""
        assert self._latest is not None
        create_table(url, "expected")
        with dbapi.connect(url) as connection, connection.cursor() as cursor:
            cursor.execute("TRUNCATE expected")
            cursor.adbc_ingest("expected", self._latest.select(COLUMNS.names), mode="append")
            connection.commit()
        return content_of(url, "expected")

    def _add(self, ids: NDArray[np.int64]) -> None:
        for part in np.array_split(ids, FILES_PER_EPOCH):
            self._append(part)

    def _append(self, ids: NDArray[np.int64]) -> None:
        rows = self._rows(ids)
        table = self._tables.load(TABLE) or self._tables.create(TABLE, COLUMNS, ORDERS.key, "bench")
        table.append(rows)
        paths = (task.file.file_path.removeprefix("file://") for task in table.scan().plan_files())
        self._files += [path for path in paths if path not in self._files]
        before = [] if self._latest is None else [self._latest]
        self._latest = last_of_each_key(pa.concat_tables([*before, rows]))

    def _rows(self, ids: NDArray[np.int64]) -> pa.Table:
        count = len(ids)
        numbers = np.arange(count)
        noise = self._draw.integers(0, 1_000_000, count)
        customers = pc.binary_join_element_wise(
            "customer", pa.array(ids).cast(pa.string()), "of street", pa.array(noise).cast(pa.string()), " "
        )
        # Later in what is written later, so that whoever goes by it alone finds the last row of a key too.
        instants = _FIRST_INSTANT + (self._lsn * _ROWS_PER_WRITE + numbers) * 1_001
        columns = [
            pa.array(ids, pa.int64()),
            customers,
            pa.array(_STATUSES[noise % len(_STATUSES)]),
            pa.array(noise / 100),
            pa.array(noise % 97, pa.int64()),
            pa.array(instants, COLUMNS.field("updated_at").type),
            pa.array(self._lsn + numbers // _ROWS_PER_WRITE, PLACE_FIELDS[0].type),
            pa.array(numbers % _ROWS_PER_WRITE, PLACE_FIELDS[1].type),
        ]
        self._lsn += count // _ROWS_PER_WRITE + 1
        return pa.Table.from_arrays(columns, schema=pa.schema([*COLUMNS, *PLACE_FIELDS]))


def last_of_each_key(rows: pa.Table) -> pa.Table:
    """By `_lsn` and `_row`."""
    ordered = rows.sort_by([("id", "ascending"), ("_lsn", "ascending"), ("_row", "ascending")])
    ids = ordered["id"].to_numpy()
    return ordered.filter(pa.array(np.append(ids[1:] != ids[:-1], True)))


def create_table(url: str, name: str) -> None:
    body = ", ".join(f"{column} {declared}" for column, declared in DECLARED.items())
    execute(url, f"CREATE TABLE IF NOT EXISTS {name} ({body}, PRIMARY KEY (id))")


def content_of(url: str, table: str) -> Content:
    with dbapi.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute(_CHECKSUM.format(table=table))
        return Content(*cursor.fetchone())


def execute(url: str, statement: str) -> None:
    with dbapi.connect(url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(statement)
