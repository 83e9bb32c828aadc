"""Packs columns into tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.protocol.tuples.encoding import (
    BLOCK_ROWS,
    ESCAPED_NUL,
    FALSE,
    FLOAT64,
    INT_ZERO,
    MAGNITUDES,
    NUL,
    NULL,
    SIGN_BIT,
    TEXT_CODES,
    Bools,
    Bytes,
    Words,
    binary_array,
    check_type,
    contains_nul,
    layout,
    nulls,
)

# Arrow addresses the bytes of a binary array with 32-bit offsets.
MAX_BATCH_BYTES = 2**31 - 1
_LARGE_TYPES = frozenset({pa.large_string(), pa.large_binary()})


def pack(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    """Packs one tuple per row: element i of row r is columns[i][r].

    Columns are of type null, bool, int64, float64, (large) string or (large) binary, and of one length.
    Raises `ValueError` for a batch that packs to 2 GiB or more, which one array cannot hold.
    """
    rows = _row_count(columns)
    _check_batch_size(sum(_byte_count(column) for column in columns if column.type in TEXT_CODES))
    blocks = [
        _pack_block([column.slice(first, BLOCK_ROWS) for column in columns])
        for first in range(0, rows, BLOCK_ROWS)
    ]
    return _concat(blocks) if blocks else pa.array([], pa.binary())


def _row_count(columns: Sequence[pa.Array]) -> int:
    if not columns:
        raise ValueError("a tuple has at least one column")
    for column in columns:
        if not isinstance(column, pa.Array):
            raise TypeError(f"a column must be a pyarrow.Array, not {type(column).__name__}")
        check_type(column.type)
    lengths = {len(column) for column in columns}
    if len(lengths) > 1:
        raise ValueError(f"columns have different lengths: {sorted(lengths)}")
    return lengths.pop()


def _check_batch_size(size: int) -> None:
    if size > MAX_BATCH_BYTES:
        raise ValueError(
            f"the packed tuples of this batch take at least {size} bytes, but one binary array holds at "
            f"most {MAX_BATCH_BYTES}: pack fewer rows at once"
        )


def _byte_count(texts: pa.Array) -> int:
    """Returns the bytes from the start of the first text to the end of the last, including those under a
    null."""
    if len(texts) == 0:
        return 0
    offset_type = np.int64 if texts.type in _LARGE_TYPES else np.int32
    offsets = np.frombuffer(texts.buffers()[1], offset_type)
    return int(offsets[texts.offset + len(texts)]) - int(offsets[texts.offset])


def _concat(arrays: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    _check_batch_size(sum(map(_byte_count, arrays)))
    return pa.concat_arrays(arrays)


def _pack_block(columns: Sequence[pa.Array]) -> pa.BinaryArray:
    # Text already lies in Arrow's buffers as it should come out, so it is joined as it is with what
    # stands between the texts: the fixed-width elements, the texts' type codes and their terminators.
    parts: list[pa.BinaryArray] = []
    fields: list[_Field] = []
    for column in columns:
        fields.append(_leading_field(column))
        if column.type in TEXT_CODES:
            parts += [_join_fields(fields), _escape(column)]
            fields = [_terminator_field(column)]
    if fields:
        parts.append(_join_fields(fields))
    return _join_parts(parts)


def _escape(column: pa.Array) -> pa.BinaryArray:
    if column.type in _LARGE_TYPES:
        # A copy that starts at 0, because a cast refuses even a short slice that lies beyond 2 GiB.
        column = pa.concat_arrays([column])
    texts = column.cast(pa.binary())
    if not contains_nul(texts):
        return texts
    # Checked here because Arrow's replace lets its offsets overflow.
    nul_count = pc.sum(pc.count_substring(texts, NUL), min_count=0).as_py()
    _check_batch_size(_byte_count(texts) + nul_count)
    return pc.replace_substring(texts, NUL, ESCAPED_NUL)


def _join_parts(parts: Sequence[pa.BinaryArray]) -> pa.BinaryArray:
    if len(parts) == 1:
        return parts[0]
    # Taking the parts in the order of the rows lays them out as the rows: twice as fast as Arrow's join.
    rows = len(parts[0])
    order = np.empty((rows, len(parts)), np.int64)
    for i in range(len(parts)):
        order[:, i] = np.arange(i * rows, (i + 1) * rows)
    offsets, data = layout(_concat(parts).take(pa.array(order.ravel())))
    return binary_array(offsets[:: len(parts)], data)


@dataclass(frozen=True)
class _Field:
    """One element of every row: its code, then the last size - 1 bytes of its word.

    Nothing is written for a row of size 0.
    """

    code: Bytes
    size: Bytes
    word: Words | None = None

    @property
    def width(self) -> int:
        return 1 if self.word is None else 9


def _leading_field(column: pa.Array) -> _Field:
    """Returns the column's element of every row, but for a text only its type code."""
    if column.type in TEXT_CODES:
        field = _code_field(np.full(len(column), TEXT_CODES[column.type], np.uint8))
    else:
        field = _FIXED_FIELDS[column.type](column)
    if column.null_count:
        is_null = nulls(column)
        field.code[is_null] = NULL
        field.size[is_null] = 1
    return field


def _terminator_field(column: pa.Array) -> _Field:
    field = _code_field(np.zeros(len(column), np.uint8))
    if column.null_count:
        field.size[nulls(column)] = 0
    return field


def _code_field(codes: Bytes) -> _Field:
    return _Field(codes, np.ones_like(codes))


def _null_field(column: pa.Array) -> _Field:
    return _code_field(np.full(len(column), NULL, np.uint8))


def _bool_field(column: pa.Array) -> _Field:
    return _code_field(FALSE + _values(column.cast(pa.uint8()), np.uint8))


def _int64_field(column: pa.Array) -> _Field:
    values = _values(column, np.int64)
    # The magnitude of the smallest int64 overflows to itself, whose bits are the right unsigned ones.
    magnitudes = np.abs(values).view(np.uint64)
    lengths = np.searchsorted(MAGNITUDES, magnitudes).astype(np.uint8)
    codes = np.where(values < 0, INT_ZERO - lengths, INT_ZERO + lengths)
    complements = (values >> 63).view(np.uint64)
    return _Field(codes, lengths + np.uint8(1), magnitudes ^ complements)


def _float64_field(column: pa.Array) -> _Field:
    bits = _values(column, np.int64)
    flips = (bits >> 63).view(np.uint64) | SIGN_BIT
    codes = np.full(len(bits), FLOAT64, np.uint8)
    return _Field(codes, np.full_like(codes, 9), bits.view(np.uint64) ^ flips)


_FIXED_FIELDS: dict[pa.DataType, Callable[[pa.Array], _Field]] = {
    pa.null(): _null_field,
    pa.bool_(): _bool_field,
    pa.int64(): _int64_field,
    pa.float64(): _float64_field,
}


def _values(column: pa.Array, dtype: Any) -> NDArray[Any]:
    """Returns the column's values as they are in memory, with anything in place of nulls."""
    itemsize = np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * itemsize)


def _join_fields(fields: Sequence[_Field]) -> pa.BinaryArray:
    sizes = np.sum([field.size for field in fields], axis=0, dtype=np.int64)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    _check_batch_size(int(offsets[-1]))
    data = _records(fields)
    if offsets[-1] < data.size:
        # A gather by position is twice as fast as a boolean mask on runs of a few bytes.
        data = data[np.flatnonzero(_used_bytes(fields))]
    return binary_array(offsets, data)


def _records(fields: Sequence[_Field]) -> Bytes:
    """Returns the fields side by side, each as wide as it can be."""
    members = []
    for i, field in enumerate(fields):
        members.append((f"code{i}", "u1"))
        if field.word is not None:
            members.append((f"word{i}", ">u8"))
    records = np.empty(len(fields[0].code), np.dtype(members))
    for i, field in enumerate(fields):
        records[f"code{i}"] = field.code
        if field.word is not None:
            records[f"word{i}"] = field.word
    return records.view(np.uint8)


def _used_bytes(fields: Sequence[_Field]) -> Bools:
    """Returns which bytes of the records are part of the tuples."""
    used = np.empty((len(fields[0].size), sum(field.width for field in fields)), np.bool_)
    start = 0
    for field in fields:
        end = start + field.width
        used[:, start] = field.size > 0
        for nth_last in range(1, field.width):
            used[:, end - nth_last] = field.size > nth_last
        start = end
    return used
