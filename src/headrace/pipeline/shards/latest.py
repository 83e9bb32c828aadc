"""Keeps the first or last row per key inside the shard's task, where one whole document of a key wins.

Spark would have to sort an epoch's rows by their keys to combine them, and to move what is left once more, to
the tasks of the shards. Here rows are moved once, and the winners are found in Arrow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from headrace.pipeline.shards.spool import DIGEST, Spool
from headrace.protocol.key_digests import digest_keys

_KIND = "rows"
_RANK = "_rank"
_BYTES_A_ROW = 96
"""Bytes that it takes to compare a row: its index, its rank, and a table of hashes."""


class Winner(StrEnum):
    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True)
class RowOrder:
    """Which of the rows of a key wins."""

    winner: Winner
    order: tuple[str, ...]
    """The names of what orders them: whole numbers and instants. No two rows of a key are equal in all of
    these, and null comes first."""


class LatestPerKey:
    """Keeps the first or last row per key, of rows that come in any order.

    `limit` is how many bytes they take in memory, with what it takes to compare them.
    Rows have the columns of their key first, of which there are `keys`, and end with those that order them.
    What is more than the limit goes to `spool`, which is for nothing else and keeps nothing in memory itself.
    """

    def __init__(self, row_order: RowOrder, keys: int, limit: int, spool: Spool) -> None:
        self._winner, self._orders = row_order.winner, len(row_order.order)
        self._keys, self._limit, self._spool = keys, limit, spool
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._hold([rows])
        if self._bytes > self._limit:
            self._make_room()

    def rows(self) -> Iterator[pa.RecordBatch]:
        """The winners, without what ordered them; nothing is added after this."""
        parts: Iterable[pa.Table]
        if self._spool.is_on_disk:
            self._write()
            parts = (bucket[_KIND].drop_columns([DIGEST]) for bucket in self._spool.buckets())
        else:
            parts = [pa.Table.from_batches(self._held)] if self._held else []
            self._held = []
        for rows in parts:
            chosen = self._chosen(rows)
            yield from chosen.select(range(chosen.num_columns - self._orders)).to_batches()

    def _hold(self, batches: Sequence[pa.RecordBatch]) -> None:
        self._held += batches
        self._bytes += sum(rows.nbytes + _BYTES_A_ROW * rows.num_rows for rows in batches)

    def _make_room(self) -> None:
        """Losers go; if there are few of them, everything goes to the disk, and so it does from then on."""
        if not self._spool.is_on_disk:
            chosen = self._chosen(pa.Table.from_batches(self._held)).to_batches()
            self._held, self._bytes = [], 0
            self._hold(chosen)
            if self._bytes <= self._limit // 2:
                return
        self._write()

    def _write(self) -> None:
        """Only the winners of what is held: a key may have very many rows, and all would be in one bucket."""
        if not self._held:
            return
        for rows in self._chosen(pa.Table.from_batches(self._held)).to_batches():
            self._spool.add(_KIND, rows, digest_keys(rows.select(range(self._keys))))
        self._held, self._bytes = [], 0

    def _chosen(self, rows: pa.Table) -> pa.Table:
        names = rows.column_names
        in_order = _in_order(rows.columns[-self._orders :])
        ranks = np.empty(len(in_order), np.int64)
        ranks[in_order] = np.arange(len(in_order))
        ranked = rows.select(range(self._keys)).append_column(_RANK, pa.array(ranks))
        best = "min" if self._winner is Winner.FIRST else "max"
        keys = names[: self._keys]
        found = ranked.group_by(keys, use_threads=False).aggregate([(_RANK, best)])
        # Endpoints take rows faster that come in the order of their index.
        found = found.sort_by([(key, "ascending") for key in keys])
        return rows.take(in_order[found[f"{_RANK}_{best}"].to_numpy()])


def _in_order(columns: Sequence[pa.ChunkedArray]) -> NDArray[np.intp]:
    """Where each row is, of those that come one after the other."""
    by: list[NDArray[Any]] = []
    for column in columns:
        numbers = column.cast(pa.int64())
        if numbers.null_count:
            by.append(numbers.is_valid().to_numpy())
            numbers = numbers.fill_null(0)
        by.append(numbers.to_numpy())
    return np.lexsort(by[::-1])
