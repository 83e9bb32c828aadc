"""Batches that Arrow calls valid, and that would end the process that reads them, or fill its memory."""

from __future__ import annotations

import struct
import subprocess
import sys

import pyarrow as pa
import pytest

from headrace.ingest.message_checks import bad_view, expanded_bytes

LONG = b"a value of more than twelve bytes"


def views(*words: tuple[int, int, int, int], nulls: int = 0, kind: pa.DataType | None = None) -> pa.Array:
    """An array of views as they come from the network; bits of `nulls` say which slots are null."""
    size = len(words) // 8 + 1
    validity = pa.py_buffer((~nulls & (2 ** (8 * size) - 1)).to_bytes(size, "little"))
    body = pa.py_buffer(b"".join(struct.pack("<iiii", *word) for word in words))
    data = pa.py_buffer(LONG)
    return pa.Array.from_buffers(kind or pa.binary_view(), len(words), [validity, body, data])


def batch(column: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"a": column})


GOOD = (len(LONG), int.from_bytes(LONG[:4], "little"), 0, 0)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ((-(2**31), 0, 0, 0), "a view has a negative length"),
        ((13, 0, 1, 0), "a view is of a buffer that is not there"),
        ((13, 0, -1, 0), "a view is of a buffer that is not there"),
        ((13, 0, 0, -1), "a view is of a buffer that is not there"),
        ((13, 0, 0, len(LONG) - 12), "a view ends outside of its buffer"),
        ((2**31 - 1, 0, 0, 2**31 - 1), "a view ends outside of its buffer"),
    ],
)
def test_a_view_of_a_null_is_looked_at(bad: tuple[int, int, int, int], said: str) -> None:
    column = views(GOOD, bad, nulls=0b10)
    column.validate(full=True)  # finds nothing wrong
    for nested in (
        column,
        pa.StructArray.from_arrays([column], names=["x"]),
        pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), column),
        pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array([1, 2]), column),
        pa.DictionaryArray.from_arrays(pa.array([0, 0]), column),
    ):
        assert bad_view(batch(nested)) == said
    assert bad_view(batch(column.slice(0, 1))) == ""


def test_views_that_are_right() -> None:
    assert bad_view(batch(views(GOOD, (3, 0, 99, 99), nulls=0b10))) == ""
    assert bad_view(batch(pa.array(["short", None, LONG.decode()], pa.string_view()))) == ""
    assert bad_view(batch(pa.array([], pa.string_view()))) == ""
    assert bad_view(batch(pa.array([1, 2]))) == ""


@pytest.mark.processes
def test_what_is_refused_would_end_the_process() -> None:
    """If it does not any more, nobody has to look."""
    program = (
        "from tests.ingest.test_message_checks import GOOD, views\n"
        "import pyarrow as pa\n"
        "views(GOOD, (-(2**31), 0, 0, 0), nulls=0b10, kind=pa.string_view()).cast(pa.string())\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode < 0


def test_how_large_a_batch_becomes() -> None:
    text = "x" * 1000
    many = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1, None], pa.int8()), pa.array([text, "y"]))
    assert expanded_bytes(batch(many)) == 1002
    assert expanded_bytes(batch(pa.DictionaryArray.from_arrays(pa.array([0] * 10), pa.array([1.5])))) == 80
    shared = views(*[GOOD] * 100)
    assert expanded_bytes(batch(shared)) == 100 * len(LONG)
    in_struct = pa.StructArray.from_arrays([many, shared.slice(0, 4)], names=["a", "b"])
    assert expanded_bytes(batch(in_struct)) == 1002 + 4 * len(LONG)
    assert expanded_bytes(batch(pa.array([1, 2, 3], pa.int64()))) == 24
    nested = pa.DictionaryArray.from_arrays(pa.array([0] * 7), pa.array([[1, 2], [3]]))
    assert expanded_bytes(batch(nested)) >= 7 * 16
