"""Checks a batch from the network before code of Arrow's relies on it.

`validate(full=True)` of pyarrow 26 does not look at the views of null slots, which a cast then reads, and
says nothing of how large a batch becomes once each row has a copy of what it refers to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_INLINE = 12  # bytes of a value that stand in its view; a longer one is in a buffer
_VIEW = 4  # words of 32 bits: length, first bytes, buffer, offset


def bad_view(batch: pa.RecordBatch) -> str:
    """Says what is wrong with a view of a valid batch, also of a null; empty if nothing is."""
    for column in batch.columns:
        for array in _arrays(column):
            if _is_view(array.type) and (problem := _bad_view(array)):
                return problem
    return ""


def expanded_bytes(batch: pa.RecordBatch) -> int:
    """Counts the bytes of the values once each row has its own, where rows share them now."""
    return sum(map(_expanded, batch.columns))


def _expanded(array: pa.Array) -> int:
    kind = array.type
    if pt.is_dictionary(kind):
        return _written_out(array)
    if _is_view(kind):
        return int(pc.sum(_lengths(array)).as_py() or 0)
    children = list(_children(array))
    return sum(map(_expanded, children)) if children else int(array.nbytes)


def _written_out(array: pa.DictionaryArray) -> int:
    values = array.dictionary
    kind = values.type
    if _is_view(kind) or pt.is_string(kind) or pt.is_large_string(kind) or pt.is_binary(kind):
        return int(pc.sum(_lengths(values).take(array.indices)).as_py() or 0)
    # The largest that each may be: what is nested has no length of its own.
    largest = -(-values.nbytes // max(len(values), 1)) if pt.is_primitive(kind) else values.nbytes
    return int(largest * len(array))


def _lengths(array: pa.Array) -> pa.Array:
    if not _is_view(array.type):
        return pc.binary_length(array)
    nulls = array.is_null().to_numpy(zero_copy_only=False)
    return pa.array(_views(array)[:, 0], pa.int64(), mask=nulls)


def _views(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int32]]:
    """A row of four words for each value."""
    views = array.buffers()[1]
    words = np.frombuffer(views, np.int32) if views is not None else np.zeros(0, np.int32)
    return words[array.offset * _VIEW : (array.offset + len(array)) * _VIEW].reshape(-1, _VIEW)


def _bad_view(array: pa.Array) -> str:
    words, data = _views(array), array.buffers()[2:]
    if (words[:, 0] < 0).any():
        return "a view has a negative length"
    lengths, _, buffers, offsets = words[words[:, 0] > _INLINE].T.astype(np.int64)
    if ((buffers < 0) | (buffers >= len(data)) | (offsets < 0)).any():
        return "a view is of a buffer that is not there"
    sizes = np.array([buffer.size for buffer in data], np.int64)
    if len(lengths) and (offsets + lengths > sizes[buffers]).any():
        return "a view ends outside of its buffer"
    return ""


def _arrays(array: pa.Array) -> Iterator[pa.Array]:
    yield array
    for child in _children(array):
        yield from _arrays(child)


def _children(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        yield array.storage
    elif pt.is_dictionary(kind):
        yield array.dictionary
    elif pt.is_struct(kind):
        yield from (array.field(index) for index in range(kind.num_fields))
    elif pt.is_map(kind):
        yield from (array.keys, array.items)
    elif pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        yield array.values


def _is_view(kind: pa.DataType) -> bool:
    return bool(pt.is_string_view(kind) or pt.is_binary_view(kind))
