"""The rows of the log's writes as Arrow batches, each row with the write that it came with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.wal.records import BadRecord, SchemaRecord, Writes
from headrace.wal.segments import records_of

LSN = "_lsn"
ROW = "_row"
PLACE_FIELDS = (pa.field(LSN, pa.int64(), nullable=False), pa.field(ROW, pa.int32(), nullable=False))
"""Where a row comes from: its write, and its index in it."""

# Messages are read many at a time, because a write is often a single row, and never all at once, because a
# log can be larger than memory.
MOST_BYTES = 32 << 20
MOST_MESSAGES = 1 << 17
MOST_ROWS = 1 << 17

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
# With threads Arrow spends more time on handing out the columns of a one-row message than on reading them.
_ONE_THREAD = pa.ipc.IpcReadOptions(use_threads=False)


@dataclass(frozen=True, slots=True)
class Located:
    """Writes with what is needed to read them."""

    writes: Writes
    schema: bytes
    """As an Arrow IPC message."""


def index_writes(segments: Iterable[memoryview]) -> dict[str, list[Located]]:
    """The writes of each collection in the order of the log, found in one pass; rows are not read yet."""
    found: dict[str, list[Located]] = {}
    for data in segments:
        schemas: dict[int, SchemaRecord] = {}
        for offset, _, record in records_of(data):
            if isinstance(record, SchemaRecord):
                schemas[record.schema_id] = record
            elif isinstance(record, Writes):
                schema = schemas.get(record.schema_id)
                if schema is None:
                    raise BadRecord("writes refer to a schema that the segment does not have", offset=offset)
                found.setdefault(schema.collection, []).append(Located(record, schema.schema))
    return found


def batches_of(data: memoryview, collection: str, after: int, through: int) -> Iterator[pa.RecordBatch]:
    """The rows of one collection in one segment, as `read_batches` gives them."""
    return read_batches(index_writes([data]).get(collection, []), after, through)


def read_batches(writes: Iterable[Located], after: int, through: int) -> Iterator[pa.RecordBatch]:
    """Rows with after < LSN <= through, in order, with the columns `_lsn` and `_row`.

    A batch has the schema that its writes were sent with, so the schema can change from one to the next.
    """
    wanted = (one for one in writes if one.writes.last_lsn > after and one.writes.first_lsn <= through)
    for group in _groups(wanted):
        batch = _read(group)
        lsns = batch.column(batch.num_columns - 2).to_numpy()
        begin, end = np.searchsorted(lsns, [after, through], side="right").tolist()
        for start in range(begin, end, MOST_ROWS):
            yield batch.slice(start, min(MOST_ROWS, end - start))


def _groups(writes: Iterable[Located]) -> Iterator[list[Located]]:
    """Neighbours of one schema, so many as may be read at a time."""
    group: list[Located] = []
    size = messages = 0
    for one in writes:
        size += len(one.writes.payload)
        messages += one.writes.messages
        if group and (one.schema != group[0].schema or size > MOST_BYTES or messages > MOST_MESSAGES):
            yield group
            group, size, messages = [], len(one.writes.payload), one.writes.messages
        group.append(one)
    if group:
        yield group


def _read(group: list[Located]) -> pa.RecordBatch:
    payloads = (one.writes.payload for one in group)
    stream = b"".join((group[0].schema, *payloads, _END_OF_STREAM))
    with pa.ipc.open_stream(pa.py_buffer(stream), options=_ONE_THREAD) as reader:
        batches = list(reader)
    sizes = _rows_of_writes(group, [batch.num_rows for batch in batches])
    lsns = np.concatenate([np.arange(one.writes.first_lsn, one.writes.last_lsn + 1) for one in group])
    rows = pa.concat_batches(batches)
    if len(lsns) != len(sizes) or sizes.sum() != rows.num_rows:
        raise BadRecord("a record of writes does not hold what it says")
    places = np.arange(rows.num_rows) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns = [*rows.columns, pa.array(np.repeat(lsns, sizes)), pa.array(places.astype(np.int32))]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema([*rows.schema, *PLACE_FIELDS]))


def _rows_of_writes(group: list[Located], rows_of_messages: list[int]) -> np.ndarray[Any, np.dtype[np.int64]]:
    if len(rows_of_messages) != sum(one.writes.messages for one in group):
        raise BadRecord("a record of writes does not hold as many messages as it says")
    sizes = []
    at = 0
    for one in group:
        rows = one.writes.rows
        sizes.append(rows_of_messages[at : at + one.writes.messages] if rows is None else rows)
        at += one.writes.messages
    return np.concatenate(sizes).astype(np.int64)
