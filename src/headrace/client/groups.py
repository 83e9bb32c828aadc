"""Groups writes that are sent together in one message."""

from __future__ import annotations

from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.client.ledger import Ledger


class Group:
    """Holds writes of one schema with consecutive sequence numbers, and their LSNs.

    The data is kept until it has reached the level at which the writer releases it. The LSNs stay for as long
    as somebody holds a receipt of the group: then only receipts refer to their group.
    """

    __slots__ = (
        "_runs",
        "accepted",
        "batches",
        "count",
        "error",
        "first",
        "ledger",
        "message",
        "rows",
        "schema",
        "seen",
        "since",
        "size",
    )

    def __init__(self, ledger: Ledger, first: int) -> None:
        self.ledger = ledger
        self.first = first
        self.schema: pa.Schema = None
        self.batches: list[pa.RecordBatch] = []
        self.size = 0
        self.since = 0.0
        """The time of the first write."""
        self.count = 0
        self.message: pa.RecordBatch = None
        self.rows: list[int] = []
        self.accepted = 0
        """The number of writes, from the first one on, that have an LSN."""
        self.error: HeadraceError | None = None
        """The reason why those without an LSN will never get one."""
        self.seen = False
        """Whether the error was raised to anybody."""
        self._runs: list[tuple[int, int, int]] = []

    @property
    def last(self) -> int:
        """The sequence number of the last write, once the group is complete."""
        return self.first + self.count - 1

    def combine(self) -> None:
        """Combines everything into one batch, and releases the many small ones."""
        if self.message is None:
            batches = self.batches
            self.rows = [batch.num_rows for batch in batches]
            self.message = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
            self.batches = []

    @property
    def message_size(self) -> int:
        """Returns the bytes that the message keeps in memory; a single write may keep those of a larger
        batch."""
        return int(self.message.get_total_buffer_size()) if self.count > 1 else self.size

    def unaccepted(self) -> tuple[int, pa.RecordBatch, list[int]]:
        """Returns what is still to be sent: the first sequence number, the data, and the rows of each
        write."""
        if not self.accepted:
            return self.first, self.message, self.rows
        start = sum(self.rows[: self.accepted])
        return self.first + self.accepted, self.message.slice(start), self.rows[self.accepted :]

    def let_go(self) -> None:
        """Releases the data, and keeps what receipts need."""
        self.batches, self.message, self.rows = [], None, []

    def assign(self, index: int, lsn: int, count: int) -> None:
        """Assigns the LSNs from `lsn` on to the writes from `index` on; 0 applies to all: committed and
        forgotten."""
        runs = self._runs
        if runs and lsn:
            start, first, length = runs[-1]
            if first and start + length == index and first + length == lsn:
                runs[-1] = (start, first, length + count)
                self.accepted = index + count
                return
        runs.append((index, lsn, count))
        self.accepted = index + count

    def unassign(self, index: int) -> None:
        """Withdraws the LSNs of the writes from `index` on: they died with the server's process."""
        kept = [(start, lsn, min(count, index - start)) for start, lsn, count in self._runs if start < index]
        # In this order, and a new list: receipts look without the lock.
        self.accepted = min(self.accepted, index)
        self._runs = kept

    def lsn_of(self, index: int) -> int | None:
        runs = self._runs
        if index >= self.accepted:
            return None
        start, lsn, _ = runs[0] if len(runs) == 1 else runs[bisect_right(runs, index, key=itemgetter(0)) - 1]
        return lsn + index - start if lsn else 0

    @property
    def last_lsn(self) -> int:
        """Returns the highest LSN so far, or 0 if there is none or it is forgotten."""
        if not self._runs:
            return 0
        _, lsn, count = self._runs[-1]
        return lsn + count - 1 if lsn else 0
