"""Acknowledgements as RecordBatches of the four columns that every client expects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.ingest.progress import Reached
from headrace.model.tiers import Tier

_TIMESTAMP = pa.timestamp("us")
ACK_SCHEMA = pa.schema(
    [
        pa.field("lsn", pa.uint64(), nullable=False),
        pa.field("durability_level", pa.string(), nullable=False),
        pa.field("is_durability_update", pa.bool_(), nullable=False),
        pa.field("timestamp", _TIMESTAMP, nullable=False),
    ]
)

MOST_ROWS = 16_384
"""Rows of one message; a slow reader holds at most a few such messages of ours."""


def _repeated_text(text: str) -> pa.Array:
    """Not by `pa.array`, which imports pandas where there is one, and the server starts a second later."""
    offsets = np.arange(MOST_ROWS + 1, dtype=np.int32) * len(text)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(text.encode() * MOST_ROWS)]
    return pa.Array.from_buffers(pa.string(), MOST_ROWS, buffers, null_count=0)


def _repeated_bool(value: bool) -> pa.Array:
    bits = pa.py_buffer((b"\xff" if value else b"\0") * (MOST_ROWS // 8))
    return pa.Array.from_buffers(pa.bool_(), MOST_ROWS, [None, bits], null_count=0)


# The two columns that say only which tier it is, made once and sliced.
_NAMES = {tier: _repeated_text(tier.name) for tier in Tier}
_UPDATES = {tier: _repeated_bool(tier is not Tier.MEMORY) for tier in Tier}


@dataclass(frozen=True, slots=True)
class Notice:
    """What there is to say of one tier."""

    tier: Tier
    reached: Sequence[Reached]

    @property
    def rows(self) -> int:
        return sum(run.last - run.first + 1 for run in self.reached)


def ack_batch(notices: Sequence[Notice]) -> pa.RecordBatch:
    """One row for each LSN and tier; at most MOST_ROWS of a tier."""
    total = sum(notice.rows for notice in notices)
    lsns = np.empty(total, np.uint64)
    times = np.empty(total, np.int64)
    at = 0
    for notice in notices:
        for run in notice.reached:
            end = at + run.last - run.first + 1
            lsns[at:end] = np.arange(run.first, run.last + 1, dtype=np.uint64)
            times[at:end] = run.at_us
            at = end
    names = [_NAMES[notice.tier].slice(0, notice.rows) for notice in notices]
    updates = [_UPDATES[notice.tier].slice(0, notice.rows) for notice in notices]
    columns = [
        _column(pa.uint64(), lsns),
        names[0] if len(names) == 1 else pa.concat_arrays(names),
        updates[0] if len(updates) == 1 else pa.concat_arrays(updates),
        _column(_TIMESTAMP, times),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ACK_SCHEMA)


def _column(kind: pa.DataType, values: np.ndarray[Any, Any]) -> pa.Array:
    """Without the detours of `pa.array`, which cost more than all the rest of a small batch."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)], null_count=0)
