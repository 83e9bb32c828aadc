"""Arrays of views as they come from the network."""

from __future__ import annotations

import struct

import pyarrow as pa

LONG = b"a value of more than twelve bytes"
GOOD = (len(LONG), int.from_bytes(LONG[:4], "little"), 0, 0)


def views(*words: tuple[int, int, int, int], nulls: int = 0, kind: pa.DataType | None = None) -> pa.Array:
    """An array of views as they come from the network; bits of `nulls` say which slots are null."""
    size = len(words) // 8 + 1
    validity = pa.py_buffer((~nulls & (2 ** (8 * size) - 1)).to_bytes(size, "little"))
    body = pa.py_buffer(b"".join(struct.pack("<iiii", *word) for word in words))
    data = pa.py_buffer(LONG)
    return pa.Array.from_buffers(kind or pa.binary_view(), len(words), [validity, body, data])
