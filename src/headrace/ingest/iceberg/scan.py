"""Reading a table's rows, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, _read_all_delete_files
from pyiceberg.table import Table

from headrace.ingest.iceberg.tables import Tables, columns_of, committed_of, reaching
from headrace.ingest.schemas import Adapter
from headrace.wal.batches import LSN, PLACE_FIELDS
from headrace.wal.state import Committed

MOST_BYTES = 8 << 20


def scan(
    tables: Tables, collection: str, from_lsn: int | None, to_lsn: int | None
) -> tuple[Committed, pa.Schema, Iterator[pa.RecordBatch]]:
    """The rows of one snapshot, and how far the table is in it; nothing if there is no table yet."""
    table = tables.load(collection)
    if table is None:
        return Committed(0), pa.schema(PLACE_FIELDS), iter(())
    columns = columns_of(collection, table)
    optional = {field.name: field.optional for field in table.schema().fields}
    places = [field.with_nullable(optional[field.name]) for field in PLACE_FIELDS if field.name in optional]
    schema = pa.schema([*columns, *places])
    return committed_of(table), schema, _rows(collection, table, schema, _filter(from_lsn, to_lsn))


def _filter(from_lsn: int | None, to_lsn: int | None) -> str | BooleanExpression:
    bounds = [] if from_lsn is None else [f"{LSN} >= {from_lsn}"]
    bounds += [] if to_lsn is None else [f"{LSN} <= {to_lsn}"]
    return " and ".join(bounds) or AlwaysTrue()


def _rows(
    collection: str, table: Table, schema: pa.Schema, wanted: str | BooleanExpression
) -> Iterator[pa.RecordBatch]:
    with reaching(collection):
        planned = table.scan(row_filter=wanted)
        tasks = list(planned.plan_files())
        reading = ArrowScan(table.metadata, table.io, planned.projection(), planned.row_filter)
        deletes = _read_all_delete_files(table.io, tasks)
        # Not `to_record_batches`, which reads all files into memory at once.
        for batch in reading._record_batches_from_scan_tasks_and_deletes(tasks, deletes):
            yield from _parts(Adapter(collection, batch.schema, schema)(batch))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    rows = max(1, batch.num_rows * MOST_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
