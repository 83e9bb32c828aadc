"""The records that only the native log writes, by another writer: to compare with and to build segments."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from headrace.wal.records import Kind, Mark, frame, padding

_WRITES = struct.Struct("<QQQIIIHH")
_ONE_EACH = 1  # flag: every message is one write
_ROW_COUNT_BYTES = 4


def frame_mark(mark: Mark) -> bytes:
    numbers = (mark.durable, mark.reserved_until)
    if mark.nonce is None:  # of version 1
        return frame(Kind.MARK, struct.pack("<QQ", *numbers))
    return frame(Kind.MARK, struct.pack("<QQQ", *numbers, mark.nonce))


def frame_writes(
    first_lsn: int,
    first_seq: int,
    accepted_us: int,
    count: int,
    schema_id: int,
    producer: str,
    rows: Sequence[int] | None,
    messages: Sequence[bytes],
) -> bytes:
    name = producer.encode()
    flags = _ONE_EACH if rows is None else 0
    numbers = (first_lsn, first_seq, accepted_us, count, schema_id, len(messages), len(name), flags)
    head = _WRITES.pack(*numbers) + name
    if rows is not None:
        head += bytes(-len(head) % _ROW_COUNT_BYTES) + np.asarray(rows, "<u4").tobytes()
    head += bytes(padding(len(head)))
    return frame(Kind.WRITES, head + b"".join(messages))
