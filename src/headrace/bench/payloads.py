"""What is written: rows of a number and a text, the same for every system."""

from __future__ import annotations

from random import Random

import pyarrow as pa

SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("payload", pa.string())])

# So many different rows are made beforehand, and sent again and again: making a batch costs more than a send.
DISTINCT = 1024
_ID_BYTES = 8
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def texts(size: int) -> list[str]:
    """Rows of `size` bytes with their number."""
    draw = Random(2026)  # noqa: S311 - the same rows each time
    length = max(size - _ID_BYTES, 1)
    return ["".join(draw.choices(_LETTERS, k=length)) for _ in range(DISTINCT)]


def batches(size: int) -> list[pa.RecordBatch]:
    """One row each."""
    return [
        pa.RecordBatch.from_arrays([pa.array([number], pa.int64()), pa.array([text])], schema=SCHEMA)
        for number, text in enumerate(texts(size))
    ]


def messages(size: int) -> list[bytes]:
    """The same rows as plain bytes, for a system that does not speak Arrow."""
    return [number.to_bytes(_ID_BYTES, "big") + text.encode() for number, text in enumerate(texts(size))]
