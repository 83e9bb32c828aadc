"""Arenas: Arrow binary arrays taken apart, so that several travel as one piece of bytes.

An array's data buffer goes into the arena as it is, and its offsets, moved to where the data landed,
are its slices.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from headrace.errors import ProtocolError


class ArenaWriter:
    """Collects arrays into one arena."""

    def __init__(self) -> None:
        self._parts: list[pa.Buffer] = []
        self._size = 0

    def add(self, array: pa.Array) -> list[int]:
        """Takes a binary or string array without nulls, and returns its slices: one offset more than rows."""
        if len(array) == 0:
            return []
        _, offsets_buffer, data = array.buffers()
        offsets = np.frombuffer(offsets_buffer, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
        begin, end = int(offsets[0]), int(offsets[-1])
        slices = offsets.astype(np.int64) - begin + self._size
        if end > begin:
            self._parts.append(data.slice(begin, end - begin))
        self._size += end - begin
        result: list[int] = slices.tolist()
        return result

    def bytes(self) -> bytes:
        return b"".join(self._parts)


def read_slices(arena: pa.Buffer, offsets: Iterable[int], name: str) -> pa.BinaryArray:
    """Returns the array that these slices of an arena represent; it shares the arena's memory."""
    bounds = np.array(offsets, dtype=np.int64)
    if len(bounds) == 0:
        return pa.array([], type=pa.binary())
    wrong = np.flatnonzero(np.diff(bounds) < 0)
    if len(wrong):
        raise _bad_slice(name, int(wrong[0]), "ends before it begins")
    if bounds[-1] > arena.size:
        row = int(np.argmax(bounds > arena.size)) - 1
        raise _bad_slice(
            name, max(row, 0), f"ends at {int(bounds[-1])}, beyond the arena's {arena.size} bytes"
        )
    return pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds.astype(np.int32)), arena], null_count=0
    )


def _bad_slice(name: str, row: int, problem: str) -> ProtocolError:
    text = f"slice {row} of {name} {problem}"
    return ProtocolError(text, message_name=name, expected="slices within the arena, in order")
