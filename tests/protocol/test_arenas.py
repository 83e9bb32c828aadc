"""Arrays as slices of an arena, and back."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.protocol.arenas import ArenaWriter, read_slices

ROWS = st.lists(st.binary(max_size=10), max_size=8)


def binary(rows: list[bytes]) -> pa.BinaryArray:
    return pa.array(rows, pa.binary())


def read(arena: bytes, offsets: list[int]) -> list[bytes]:
    array = read_slices(pa.py_buffer(arena), offsets, "docs_json")
    array.validate(full=True)
    found: list[bytes] = array.to_pylist()
    return found


@given(st.lists(ROWS, max_size=4))
def test_arrays_come_back_out_of_an_arena(arrays: list[list[bytes]]) -> None:
    arena = ArenaWriter()
    slices = [arena.add(binary(rows)) for rows in arrays]
    written = arena.bytes()
    assert written == b"".join(b"".join(rows) for rows in arrays)
    assert [read(written, offsets) for offsets in slices] == arrays


@given(ROWS, st.integers(0, 8), st.integers(0, 8))
def test_a_slice_of_an_array_takes_only_its_own_bytes(rows: list[bytes], begin: int, length: int) -> None:
    arena = ArenaWriter()
    arena.add(binary([b"before"]))
    offsets = arena.add(binary(rows).slice(min(begin, len(rows)), length))
    assert arena.bytes() == b"before" + b"".join(rows[begin : begin + length])
    assert read(arena.bytes(), offsets) == rows[begin : begin + length]


def test_offsets_go_on_where_the_array_before_ended() -> None:
    arena = ArenaWriter()
    assert arena.add(binary([b"ab", b"", b"c"])) == [0, 2, 2, 3]
    assert arena.add(pa.array(["d\u00e9"])) == [3, 6]
    assert arena.add(binary([])) == []
    assert arena.add(binary([b""])) == [6, 6]
    assert arena.bytes() == "abcd\u00e9".encode()


@pytest.mark.parametrize("offsets", [[], [0], [3]])
def test_slices_without_rows_are_empty(offsets: list[int]) -> None:
    assert read(b"abc", offsets) == []


def test_slices_share_the_arenas_memory() -> None:
    arena = pa.py_buffer(b"abcdef")
    assert read_slices(arena, [1, 3, 5], "docs_json").buffers()[2].address == arena.address


@pytest.mark.parametrize(
    ("offsets", "problem"),
    [
        ([2, 1], "slice 0 of packed_keys ends before it begins"),
        ([0, 1, 3, 2, 4], "slice 2 of packed_keys ends before it begins"),
        ([0, 4], "slice 0 of packed_keys ends at 4, beyond the arena's 3 bytes"),
        ([0, 2, 4, 5], "slice 1 of packed_keys ends at 5, beyond the arena's 3 bytes"),
        ([4], "slice 0 of packed_keys ends at 4, beyond the arena's 3 bytes"),
        ([2**32 - 1, 2**32 - 1], "slice 0 of packed_keys ends at 4294967295, beyond the arena's 3 bytes"),
        ([0, 2**32 - 1], "slice 0 of packed_keys ends at 4294967295, beyond the arena's 3 bytes"),
    ],
)
def test_slices_outside_of_the_arena_are_refused(offsets: list[int], problem: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        read_slices(pa.py_buffer(b"abc"), offsets, "packed_keys")
    assert str(refused.value) == problem
    assert refused.value.message_name == "packed_keys"


@given(st.binary(max_size=10), st.lists(st.integers(0, 12) | st.integers(0, 2**32 - 1), max_size=5))
def test_any_offsets_are_slices_or_refused(arena: bytes, offsets: list[int]) -> None:
    if offsets == sorted(offsets) and (not offsets or offsets[-1] <= len(arena)):
        assert read(arena, offsets) == [arena[begin:end] for begin, end in pairwise(offsets)]
    else:
        with pytest.raises(ProtocolError):
            read(arena, offsets)
