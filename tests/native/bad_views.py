"""What is wrong with views of a batch that pyarrow takes for valid: an oracle for the native admission."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
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
