"""Unpacks tuples into columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from headrace.errors import TupleError
from headrace.protocol.tuples.encoding import (
    BLOCK_ROWS,
    BYTES,
    ESCAPED_NUL,
    FALSE,
    FLOAT64,
    INT_ZERO,
    MAGNITUDES,
    NUL,
    NULL,
    SIGN_BIT,
    STRING,
    TEXT_CODES,
    TRUE,
    Bools,
    Bytes,
    Positions,
    Words,
    binary_array,
    check_type,
    contains_nul,
    layout,
    nulls,
)

_WORD_BYTES = 8


def unpack(packed: pa.BinaryArray, types: Sequence[pa.DataType]) -> list[pa.Array]:
    """Reverses `pack`. Each row must hold exactly len(types) elements of these types or null.

    Raises `TupleError` for the first row that does not, with the offset at which its faulty element
    starts. Only the one encoding that `pack` writes is accepted, so that equal tuples are equal bytes.
    """
    if not isinstance(packed, pa.BinaryArray):
        raise TypeError(f"packed tuples must be a pyarrow.BinaryArray, not {type(packed).__name__}")
    for kind in types:
        check_type(kind)
    try:
        return _read(packed, types)
    except TupleError as fault:
        raise _first_fault(packed, types, fault) from None


def _read(packed: pa.BinaryArray, types: Sequence[pa.DataType]) -> list[pa.Array]:
    if packed.null_count:
        raise _tuple_error(int(nulls(packed).argmax()), 0, "null instead of a packed tuple")
    if len(packed) == 0:
        return [pa.array([], kind) for kind in types]
    offsets, data = layout(packed)
    # Padded so that a word can be read at every byte.
    data = np.concatenate((data, np.zeros(_WORD_BYTES, np.uint8)))
    blocks = [_Reader(data, offsets, first).columns(types) for first in range(0, len(packed), BLOCK_ROWS)]
    return [pa.concat_arrays(column) for column in zip(*blocks, strict=True)]


def _first_fault(packed: pa.BinaryArray, types: Sequence[pa.DataType], fault: TupleError) -> TupleError:
    """Finds the first faulty row. Rows are read column by column, so the fault that ended the reading may be
    in a later one."""
    while True:
        try:
            _read(packed.slice(0, fault.row), types)
        except TupleError as earlier:
            fault = earlier
        else:
            return fault


def _tuple_error(row: int, offset: int, reason: str) -> TupleError:
    return TupleError(f"row {row}, byte {offset}: {reason}", row=row, offset=offset)


class _Reader:
    """Reads a block of rows, one element of every row at a time.

    The first check that any row fails ends the reading, so that what comes after a check can rely on it.
    """

    def __init__(self, data: Bytes, offsets: Positions, first: int) -> None:
        bounds = offsets[first : first + BLOCK_ROWS + 1]
        self._first = first
        self._starts, self._ends = bounds[:-1] - bounds[0], bounds[1:] - bounds[0]
        self._at = self._starts
        self._data = data[bounds[0] : bounds[-1] + _WORD_BYTES]
        self._words = np.ndarray(self._data.size - _WORD_BYTES + 1, ">u8", self._data, strides=(1,))

    def columns(self, types: Sequence[pa.DataType]) -> list[pa.Array]:
        columns = [self._texts(kind) if kind in TEXT_CODES else self._fixed(kind) for kind in types]
        self._refuse(self._at < self._ends, "more bytes than the tuple's elements take")
        return columns

    def _fixed(self, kind: pa.DataType) -> pa.Array:
        codes = self._codes()
        widths = _WIDTHS[kind][codes]
        self._check_codes(widths > 0, codes, kind)
        ends = self._at + widths
        self._refuse(ends > self._ends, f"truncated {kind}")
        column = self._fixed_column(kind, codes)
        self._at = ends
        return column

    def _texts(self, kind: pa.DataType) -> pa.Array:
        codes = self._codes()
        is_null = codes == NULL
        self._check_codes(is_null | (codes == TEXT_CODES[kind]), codes, kind)
        starts = self._at + 1
        ends = self._terminators.first_from(starts)
        unterminated = ends >= self._ends
        if is_null.any():  # a null is its code alone
            ends = np.where(is_null, starts, ends)
            unterminated &= ~is_null
        self._refuse(unterminated, f"unterminated {kind}")
        texts = self._decoded(self._slices(starts, ends, is_null), kind)
        self._at = ends + ~is_null
        return texts

    def _codes(self) -> Positions:
        self._refuse(self._at == self._ends, "the tuple ends before all of its elements")
        # Wide, because numpy would widen them again for every table that they index.
        return np.asarray(self._data[self._at], np.int64)

    def _fixed_column(self, kind: pa.DataType, codes: Positions) -> pa.Array:
        if kind == pa.null():
            return pa.nulls(len(codes))
        values: NDArray[Any]
        if kind == pa.int64():
            values = self._int64s(codes)
        elif kind == pa.float64():
            values = self._float64s()
        else:
            values = codes == TRUE
        return pa.array(values, kind, mask=_mask(codes == NULL))

    def _int64s(self, codes: Positions) -> NDArray[np.int64]:
        complements = _INT_COMPLEMENTS[codes]
        magnitudes = (self._values() >> _INT_SHIFTS[codes]) ^ complements
        self._refuse(magnitudes < _INT_SMALLEST[codes], "an integer in more bytes than it needs")
        self._refuse(magnitudes > _INT_LARGEST[codes], "an integer that does not fit int64")
        values = magnitudes.view(np.int64)
        return np.where(complements > 0, -values, values)

    def _float64s(self) -> NDArray[np.float64]:
        words = self._values()
        flips = (~words.view(np.int64) >> 63).view(np.uint64) | SIGN_BIT
        return (words ^ flips).view(np.float64)

    def _values(self) -> Words:
        return np.asarray(self._words[self._at + 1], np.uint64)

    @cached_property
    def _terminators(self) -> _Terminators:
        return _Terminators(self._data[: self._ends[-1]])

    def _slices(self, starts: Positions, ends: Positions, is_null: Bools) -> pa.BinaryArray:
        # Every second element of this array is a text; those between are what separates texts.
        cuts = np.column_stack((starts, ends)).ravel()
        texts = np.arange(0, len(cuts), 2)
        return pc.take(
            binary_array(cuts, self._data), pa.array(texts, mask=_mask(is_null)), boundscheck=False
        )

    def _decoded(self, escaped: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
        # The terminators are cut off, so that a NUL still in there can only be an escaped one.
        texts = pc.replace_substring(escaped, ESCAPED_NUL, NUL) if contains_nul(escaped) else escaped
        if kind == pa.string() and _is_ascii(texts):
            return texts.view(kind)
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid:
            self._refuse(np.array([not _is_utf8(text) for text in texts]), "invalid UTF-8")
            raise

    def _check_codes(self, allowed: Bools, codes: Positions, kind: pa.DataType) -> None:
        if not allowed.all():
            row = int(allowed.argmin())
            code = int(codes[row])
            found = _CODE_NAMES.get(code, f"unknown type code 0x{code:02x}")
            self._fail(row, f"expected {kind}, found {found}")

    def _refuse(self, faulty: Bools, reason: str) -> None:
        if faulty.any():
            self._fail(int(faulty.argmax()), reason)

    def _fail(self, row: int, reason: str) -> NoReturn:
        offset = int(self._at[row] - self._starts[row])
        raise _tuple_error(self._first + row, offset, reason)


class _Terminators:
    """Finds the 00 that ends a text: one that no FF follows.

    A bitmap of them, 64 to a word, covers a whole block at once and texts of any length.
    """

    def __init__(self, data: Bytes) -> None:
        size = data.size
        marks = np.empty(size // 64 * 64 + 64, np.bool_)
        np.equal(data, 0, out=marks[:size])
        # Every row starts with a code that was checked, so what follows is not an FF of the next row.
        marks[: size - 1] &= data[1:] != ESCAPED_NUL[1]
        marks[size:] = False
        self._words = np.packbits(marks, bitorder="little").view("<u8")
        firsts = np.arange(0, marks.size, 64) + _lowest_bits(self._words)
        firsts[self._words == 0] = size
        # For each word, where the first mark in those after it is, or the end of the data if there is none.
        self._beyond = np.append(np.minimum.accumulate(firsts[:0:-1])[::-1], size)

    def first_from(self, starts: Positions) -> Positions:
        words = starts >> 6
        marks = self._words[words] >> (starts & 63).view(np.uint64)
        return np.where(marks > 0, starts + _lowest_bits(marks), self._beyond[words])


def _lowest_bits(words: Words) -> Bytes:
    """Returns the index of each word's lowest set bit."""
    below_lowest = (words - np.uint64(1)) & ~words
    return np.asarray(np.bitwise_count(below_lowest))


def _mask(is_null: Bools) -> Bools | None:
    return is_null if is_null.any() else None


def _is_ascii(array: pa.BinaryArray) -> bool:
    _, data = layout(array)
    return bool(data.max(initial=0) < 0x80)


def _is_utf8(text: pa.BinaryScalar) -> bool:
    try:
        text.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


# The number of bytes behind the code; null is read as an integer of none.
_INT_LENGTHS = {NULL: 0} | {INT_ZERO + n: abs(n) for n in range(-8, 9)}


def _width_table(widths: dict[int, int]) -> Bytes:
    table = np.zeros(256, np.uint8)
    for code, width in widths.items():
        table[code] = width
    return table


# The size in bytes of an element of this type by its code, including the code; 0 for invalid codes.
_WIDTHS = {
    pa.null(): _width_table({NULL: 1}),
    pa.bool_(): _width_table({NULL: 1, FALSE: 1, TRUE: 1}),
    pa.int64(): _width_table({code: 1 + length for code, length in _INT_LENGTHS.items()}),
    pa.float64(): _width_table({NULL: 1, FLOAT64: 9}),
}


def _int_table(entry: Callable[[int, int], int]) -> Words:
    """Returns `entry` of each integer's code and the number of bytes behind it, at the index of the code."""
    table = np.zeros(256, np.uint64)
    for code, length in _INT_LENGTHS.items():
        table[code] = entry(code, length)
    return table


_INT_SHIFTS = _int_table(lambda _, length: 64 - 8 * length)
_INT_COMPLEMENTS = _int_table(lambda code, length: int(MAGNITUDES[length]) if code < INT_ZERO else 0)
_INT_SMALLEST = _int_table(lambda _, length: 1 << (8 * (length - 1)) if length else 0)
_INT_LARGEST = _int_table(lambda code, _: 2**63 if code < INT_ZERO else 2**63 - 1)

_CODE_NAMES = dict.fromkeys(_INT_LENGTHS, "an integer") | {
    NULL: "null",
    BYTES: "bytes",
    STRING: "a string",
    0x05: "a nested tuple",
    0x0B: "an integer that does not fit int64",
    0x1D: "an integer that does not fit int64",
    0x20: "a float32",
    FLOAT64: "a float64",
    FALSE: "a bool",
    TRUE: "a bool",
    0x30: "a UUID",
    0x32: "an 80-bit versionstamp",
    0x33: "a 96-bit versionstamp",
}
