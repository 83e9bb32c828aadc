"""What audits of several formats ask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc


def last_with_rows(decided: Mapping[int, int]) -> int:
    """Of the epochs that are to be there; -1: none."""
    return max((epoch for epoch, rows in decided.items() if rows), default=-1)


def behind(told: int, decided: Mapping[int, int]) -> Iterator[str]:
    """Where a table itself tells its last epoch."""
    last = last_with_rows(decided)
    if told < last:
        yield f"epoch {last} was committed, and the table says that epoch {told} is its last"


def ahead(told: int, decided: Mapping[int, int], last: Callable[[], int] | None) -> Iterator[str]:
    """Of a view, whose rows do not tell their epoch; `last` as in `RowSink.audit`."""
    if last is not None and told > max(decided, default=-1) and told > last():
        yield f"the table says that epoch {told} is its last, which was never decided"


def never_decided(
    found: Mapping[int, int], decided: Mapping[int, int], last: Callable[[], int] | None
) -> Iterator[str]:
    """Rows of epochs that the log does not know, by their number; `last` as in `RowSink.audit`."""
    later = [epoch for epoch in found if epoch > max(decided, default=-1)]
    if later and last is not None:
        known = last()
        for epoch in sorted(later):
            if epoch > known:
                yield f"epoch {epoch} was never decided, and {found[epoch]} rows of it are there"


def keys_twice(batches: Iterable[pa.RecordBatch], keys: Sequence[str], where: str) -> Iterator[str]:
    """Of a view, whose key's columns are read; null is a value like others."""
    schema = pa.schema([])
    columns: list[pa.RecordBatch] = []
    for batch in batches:
        columns.append(batch.select(list(keys)))
        schema = columns[-1].schema
    if not columns:
        return
    times = pa.Table.from_batches(columns, schema).group_by(list(keys)).aggregate([([], "count_all")])
    count = pc.sum(pc.greater(times["count_all"], 1)).as_py()
    if count:
        yield f"{count} keys have more than one row in {where}"
