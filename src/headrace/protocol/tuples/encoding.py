"""The encoding's constants, and access to Arrow's memory, for packing and unpacking."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
Positions = NDArray[np.int64]

NULL, BYTES, STRING, INT_ZERO, FLOAT64, FALSE, TRUE = 0x00, 0x01, 0x02, 0x14, 0x21, 0x26, 0x27
NUL, ESCAPED_NUL = b"\x00", b"\x00\xff"

FIXED_TYPES = frozenset({pa.null(), pa.bool_(), pa.int64(), pa.float64()})
TEXT_CODES = {
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
}

# The largest magnitude that n bytes hold, at index n.
MAGNITUDES = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
SIGN_BIT = np.uint64(1 << 63)

# Batches are worked on in blocks of so many rows, whose intermediate arrays are small enough to stay in
# the cache and in the process: larger ones go back to the system when they are freed, and faulting them
# in again for every batch can take longer than the work on them.
BLOCK_ROWS = 16_384


def check_type(kind: pa.DataType) -> None:
    if kind not in TEXT_CODES and kind not in FIXED_TYPES:
        raise TypeError(f"{kind} cannot be an element of a packed tuple")


def layout(array: pa.BinaryArray) -> tuple[Positions, Bytes]:
    """Returns the bytes of an array's rows end to end, and the offsets at which each row starts and the last
    one ends.

    The array must not be empty: Arrow may omit the buffers of an empty one.
    """
    _, offset_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    data = np.frombuffer(b"" if data_buffer is None else data_buffer, np.uint8)
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def binary_array(offsets: Positions, data: Bytes) -> pa.BinaryArray:
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def contains_nul(array: pa.BinaryArray) -> bool:
    _, data = layout(array)
    return bool(np.count_nonzero(data) < data.size)


def nulls(array: pa.Array) -> Bools:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False))
