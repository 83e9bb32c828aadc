"""Reads a Delta table: on the driver, or by Spark's Python tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

from headrace.errors import SchemaError
from headrace.sinks.columns import arrow_type, as_struct
from headrace.sinks.contract import Place
from headrace.sinks.delta_table import Table, Tables
from headrace.sinks.file_reading import read_listed
from headrace.sinks.standard_sql import quoted, text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_TASKS_PER_CORE = 4


def read_rows(
    place: Place, tables: Tables, columns: Sequence[str], epoch: int | None
) -> Iterator[pa.RecordBatch]:
    table = tables.load()
    if table is None:
        return
    known = table.columns
    for name in columns:
        if name not in known:
            raise SchemaError(f"{table.root.url} has no column {name!r}: ask for another one")
    wanted = pa.schema([(name, arrow_type(known[name])) for name in columns])
    conditions = [f"{quoted(place.owned)} = {text(place.writer)}"] if place.owned else []
    conditions += [f"{quoted(place.epoch)} = {epoch}"] if epoch is not None else []
    with tables.speaking("be read"):
        found = table.delta.scan(list(columns), " AND ".join(conditions) or None)
        for batch in pa.RecordBatchReader.from_stream(found):
            arrays = [batch.column(field.name).cast(field.type) for field in wanted]
            yield pa.RecordBatch.from_arrays(arrays, schema=wanted)


def current_rows(spark: SparkSession, table: Table) -> DataFrame | None:
    """All of them, as of the version that was loaded; None if there are none."""
    from pyspark.sql.types import StructType

    columns = table.columns
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items()])
    files = [(json.dumps(file),) for file in data_files(table)]
    if not files:
        return None
    tasks = min(len(files), spark.sparkContext.defaultParallelism * _TASKS_PER_CORE)
    listed = spark.createDataFrame(files, "file string").repartition(tasks)
    return listed.mapInArrow(
        partial(read_listed, table.root, schema), StructType.fromJson(as_struct(columns))
    )


def data_files(table: Table) -> Iterator[dict[str, Any]]:
    """What the table has now: the path, size and partition of each file."""
    for action in pa.table(table.delta.get_add_actions(flatten=False)).to_pylist():
        partition = {name: _text(value) for name, value in (action.get("partition") or {}).items()}
        # A path in the log is a relative URL.
        yield {"path": unquote(action["path"]), "size": action["size_bytes"], "partition": partition}


def has_rows(table: Table) -> bool:
    """By what the log says of the files; one that it does not know the rows of may have some."""
    actions = pa.table(table.delta.get_add_actions(flatten=False))
    if "num_records" not in actions.column_names:
        return bool(actions.num_rows)
    return any(count != 0 for count in actions["num_records"].to_pylist())


def _text(value: Any) -> str | None:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)
