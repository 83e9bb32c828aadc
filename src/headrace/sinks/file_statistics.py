"""What is known of a Parquet file's columns, as Delta's log keeps it: readers skip files by it."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

_LONGEST_TEXT = 64
"""A minimum is cut to it, which leaves it a minimum; a longer maximum is left out."""


def statistics(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """Bounds of whole numbers, texts, dates and instants.

    Not of floating point, where NaN is in no bounds and readers disagree on its order.
    """
    nulls: dict[str, int] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    flat = {field.name for field in schema if not pt.is_nested(field.type)}
    bounded = {field.name for field in schema if _is_bounded(field.type)}
    for name, chunks in _by_column(metadata).items():
        if name not in flat:
            continue
        if all(chunk is not None and chunk.has_null_count for chunk in chunks):
            nulls[name] = sum(chunk.null_count for chunk in chunks)
        known = [chunk for chunk in chunks if chunk is not None and chunk.has_min_max]
        empty = [chunk for chunk in chunks if chunk is not None and chunk.num_values == 0]
        if name in bounded and known and len(known) + len(empty) == len(chunks):
            low |= _bound(name, min(chunk.min for chunk in known), is_high=False)
            high |= _bound(name, max(chunk.max for chunk in known), is_high=True)
    counts = {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}
    return json.dumps(counts, separators=(",", ":"))


def _by_column(metadata: pq.FileMetaData) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            column = metadata.row_group(group).column(index)
            found.setdefault(column.path_in_schema, []).append(column.statistics)
    return found


def _is_bounded(kind: pa.DataType) -> bool:
    return bool(
        pt.is_integer(kind)
        or pt.is_string(kind)
        or pt.is_date(kind)
        or (pt.is_timestamp(kind) and kind.tz is not None)
    )


def _bound(name: str, value: Any, *, is_high: bool) -> dict[str, Any]:
    if isinstance(value, str) and len(value) > _LONGEST_TEXT:
        return {} if is_high else {name: value[:_LONGEST_TEXT]}
    if isinstance(value, datetime):  # in milliseconds, as everybody writes them
        cut = value.replace(microsecond=value.microsecond // 1000 * 1000)
        cut += timedelta(milliseconds=1) if is_high and cut != value else timedelta()
        return {name: cut.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"}
    return {name: value.isoformat() if isinstance(value, date) else value}
