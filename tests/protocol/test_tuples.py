"""The tuple encoding, held against FoundationDB's own implementation of it."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cmp_to_key
from unittest.mock import patch

import fdb.tuple
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import TupleError
from headrace.protocol.tuples import pack, packing, unpack, unpacking
from headrace.protocol.tuples.encoding import BLOCK_ROWS
from tests.examples import examples

Value = None | bool | int | float | str | bytes
Row = tuple[Value, ...]

NAN_WITH_PAYLOAD = struct.unpack(">d", bytes.fromhex("fff8000000000123"))[0]
EDGE_INTS = sorted(
    {0, 2**63 - 1, -(2**63)}
    | {
        sign * (2 ** (8 * length) + step)
        for length in range(8)
        for sign in (1, -1)
        for step in (-2, -1, 0, 1)
    }
)
EDGE_FLOATS = [
    0.0,
    -0.0,
    1.5,
    -1.5,
    5e-324,
    1e308,
    float("inf"),
    -float("inf"),
    float("nan"),
    NAN_WITH_PAYLOAD,
]
EDGE_TEXTS = [
    "",
    "\0",
    "\0\0",
    "a\0",
    "\0a",
    "\x7f\x80",
    "\u07ff\u0800\uffff",
    "\U00010000\U0010ffff",
    "x" * 200,
]
EDGE_BYTES = [b"", b"\0", b"\0\xff", b"\xff", b"\xff\0", b"\0\0\xff\xff", b"a\0\xffb", bytes(range(256))]

VALUES: dict[pa.DataType, st.SearchStrategy[Value]] = {
    pa.null(): st.none(),
    pa.bool_(): st.booleans(),
    pa.int64(): st.sampled_from(EDGE_INTS) | st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.sampled_from(EDGE_FLOATS) | st.floats(),
    pa.string(): st.sampled_from(EDGE_TEXTS) | st.text() | st.text("\0ÿa", max_size=140),
    pa.binary(): st.sampled_from(EDGE_BYTES)
    | st.binary()
    | st.lists(st.sampled_from([0, 1, 255])).map(bytes),
}
VALUES |= {pa.large_string(): VALUES[pa.string()], pa.large_binary(): VALUES[pa.binary()]}
TYPES = list(VALUES)

PYTHON_TYPES = {
    pa.null(): type(None),
    pa.bool_(): bool,
    pa.int64(): int,
    pa.float64(): float,
    pa.string(): str,
    pa.binary(): bytes,
}

EDGE_COLUMNS = [
    pa.array([False, True, None], pa.bool_()),
    pa.array([*EDGE_INTS, None], pa.int64()),
    pa.array([*EDGE_FLOATS, None], pa.float64()),
    pa.array([*EDGE_TEXTS, None], pa.string()),
    pa.array([*EDGE_BYTES, None], pa.binary()),
]

# One row of each shape that a malformed one is made from, and its types.
SAMPLES: list[tuple[Row, list[pa.DataType]]] = [
    ((5, "a\0b", -1.5, True), [pa.int64(), pa.string(), pa.float64(), pa.bool_()]),
    ((-70000, b"\0\xff\0", None), [pa.int64(), pa.binary(), pa.string()]),
    ((None, "né\U00010000", 2**63 - 1), [pa.float64(), pa.string(), pa.int64()]),
    ((False, 0, b"", ""), [pa.bool_(), pa.int64(), pa.binary(), pa.string()]),
    ((-(2**63), None, 1e300), [pa.int64(), pa.null(), pa.float64()]),
]


@contextmanager
def blocks_of(rows: int) -> Iterator[None]:
    with patch.object(packing, "BLOCK_ROWS", rows), patch.object(unpacking, "BLOCK_ROWS", rows):
        yield


def types_of(columns: Sequence[pa.Array]) -> list[pa.DataType]:
    return [column.type for column in columns]


def rows_of(columns: Sequence[pa.Array]) -> list[Row]:
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def comparable(row: Row) -> list[tuple[type, object]]:
    """Tells 1 from True and 0.0 from -0.0, and a NaN is equal to itself."""
    return [(type(value), struct.pack(">d", value) if isinstance(value, float) else value) for value in row]


def reference_rows(packed: Sequence[bytes]) -> list[Row]:
    return [fdb.tuple.unpack(row) for row in packed]


def assert_same(rows: Sequence[Row], expected: Sequence[Row]) -> None:
    assert [comparable(row) for row in rows] == [comparable(row) for row in expected]


def belongs(value: Value, kind: pa.DataType) -> bool:
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return False
    return value is None or type(value) is PYTHON_TYPES[kind]


def is_well_formed(packed: bytes, types: Sequence[pa.DataType]) -> bool:
    """Whether these are the bytes that FoundationDB packs a tuple of these types to."""
    try:
        row = fdb.tuple.unpack(packed)
    except (ValueError, IndexError, struct.error):
        return False
    if len(row) != len(types) or fdb.tuple.pack(row) != packed:
        return False
    return all(map(belongs, row, types))


def check_against_reference(packed: Sequence[bytes], types: Sequence[pa.DataType]) -> None:
    """Either all rows are well formed and read as FoundationDB reads them, or the first bad one is named."""
    first_bad = next((i for i, row in enumerate(packed) if not is_well_formed(row, types)), None)
    if first_bad is None:
        assert_same(rows_of(unpack(pa.array(packed, pa.binary()), types)), reference_rows(packed))
        return
    with pytest.raises(TupleError) as raised:
        unpack(pa.array(packed, pa.binary()), types)
    assert raised.value.row == first_bad
    assert 0 <= raised.value.offset <= len(packed[first_bad])
    assert f"row {first_bad}, byte {raised.value.offset}: " in raised.value.message


@st.composite
def columns_of(draw: st.DrawFn, types: Sequence[pa.DataType], max_rows: int = 12) -> list[pa.Array]:
    """Columns of one length, each maybe a slice of something longer."""
    length = draw(st.integers(0, max_rows))
    columns = []
    for kind in types:
        before, after = draw(st.integers(0, 9)), draw(st.integers(0, 2))
        size = before + length + after
        values = draw(st.lists(st.none() | VALUES[kind], min_size=size, max_size=size))
        columns.append(pa.array(values, kind).slice(before, length))
    return columns


any_types = st.lists(st.sampled_from(TYPES), min_size=1, max_size=5)
any_columns = any_types.flatmap(columns_of)
block_sizes = st.sampled_from([1, 3, 1000])


@st.composite
def damaged_batches(draw: st.DrawFn) -> tuple[list[bytes], list[pa.DataType]]:
    """Packed rows of which some had bytes changed, cut off, inserted or made up."""
    row, types = draw(st.sampled_from(SAMPLES))
    damaged = st.just(fdb.tuple.pack(row)) | _damaged(fdb.tuple.pack(row)) | _made_up_of_pieces()
    return draw(st.lists(damaged, min_size=1, max_size=6)), types


@st.composite
def _damaged(draw: st.DrawFn, packed: bytes) -> bytes:
    at = draw(st.integers(0, len(packed)))
    removed = draw(st.integers(0, 2))
    inserted = draw(
        st.lists(st.sampled_from([0x00, 0xFF, 0x80, 0x15, 0x02]) | st.integers(0, 255), max_size=2)
    )
    return packed[:at] + bytes(inserted) + packed[at + removed :]


def _made_up_of_pieces() -> st.SearchStrategy[bytes]:
    pieces = st.sampled_from(
        [b"\x00", b"\xff", b"\x01", b"\x02a", b"\x14", b"\x15\x05", b"\x21", b"\x26", b"\x27"]
    )
    return st.lists(pieces | st.binary(max_size=9), max_size=6).map(b"".join)


# What pack writes


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.int64(), None, "00"),
        (pa.null(), None, "00"),
        (pa.bool_(), False, "26"),
        (pa.bool_(), True, "27"),
        (pa.int64(), 0, "14"),
        (pa.int64(), 1, "15 01"),
        (pa.int64(), 255, "15 ff"),
        (pa.int64(), 256, "16 01 00"),
        (pa.int64(), 2**63 - 1, "1c 7f ff ff ff ff ff ff ff"),
        (pa.int64(), -1, "13 fe"),
        (pa.int64(), -255, "13 00"),
        (pa.int64(), -256, "12 fe ff"),
        (pa.int64(), -(2**63), "0c 7f ff ff ff ff ff ff ff"),
        (pa.float64(), 0.0, "21 80 00 00 00 00 00 00 00"),
        (pa.float64(), -0.0, "21 7f ff ff ff ff ff ff ff"),
        (pa.float64(), 1.0, "21 bf f0 00 00 00 00 00 00"),
        (pa.float64(), -1.0, "21 40 0f ff ff ff ff ff ff"),
        (pa.string(), "", "02 00"),
        (pa.string(), "F\u00d4O\0bar", "02 46 c3 94 4f 00 ff 62 61 72 00"),
        (pa.binary(), b"foo\0bar", "01 66 6f 6f 00 ff 62 61 72 00"),
        (pa.binary(), b"\0\xff", "01 00 ff ff 00"),
    ],
)
def test_golden_elements(kind: pa.DataType, value: Value, expected: str) -> None:
    assert pack([pa.array([value], kind)]).to_pylist() == [bytes.fromhex(expected)]
    assert unpack(pa.array([bytes.fromhex(expected)]), [kind])[0].to_pylist() == [value]


def test_golden_row() -> None:
    columns = [
        pa.array([7, None], pa.int64()),
        pa.array(["k", "\0"], pa.string()),
        pa.array([None, -2.0], pa.float64()),
        pa.array([True, None], pa.bool_()),
        pa.array([b"", None], pa.binary()),
    ]
    assert pack(columns).to_pylist() == [
        bytes.fromhex("15 07  02 6b 00  00  27  01 00"),
        bytes.fromhex("00  02 00 ff 00  21 3f ff ff ff ff ff ff ff  00  00"),
    ]


@pytest.mark.parametrize("column", EDGE_COLUMNS, ids=lambda column: str(column.type))
def test_edge_values_pack_as_in_foundationdb(column: pa.Array) -> None:
    packed = pack([column])
    assert packed.type == pa.binary()
    assert packed.to_pylist() == [fdb.tuple.pack(row) for row in rows_of([column])]
    assert_same(rows_of(unpack(packed, [column.type])), rows_of([column]))


@examples(2.5)
@given(any_columns, block_sizes)
def test_packs_as_foundationdb_and_back(columns: list[pa.Array], block: int) -> None:
    with blocks_of(block):
        packed = pack(columns)
        unpacked = unpack(packed, types_of(columns))
    assert packed.null_count == 0
    packed.validate(full=True)
    assert packed.to_pylist() == [fdb.tuple.pack(row) for row in rows_of(columns)]
    for column in unpacked:
        column.validate(full=True)
    assert types_of(unpacked) == types_of(columns)
    assert_same(rows_of(unpacked), rows_of(columns))


@examples(2)
@given(any_columns, st.data())
def test_unpacks_slices(columns: list[pa.Array], data: st.DataObject) -> None:
    packed = pack(columns)
    first = data.draw(st.integers(0, len(packed)))
    rows = data.draw(st.integers(0, len(packed) - first))
    part = packed.slice(first, rows)
    assert_same(rows_of(unpack(part, types_of(columns))), reference_rows(part.to_pylist()))


@examples(2)
@given(any_columns)
def test_packed_rows_sort_as_tuples(columns: list[pa.Array]) -> None:
    by_tuple = sorted(rows_of(columns), key=cmp_to_key(fdb.tuple.compare))
    assert sorted(pack(columns).to_pylist()) == [fdb.tuple.pack(row) for row in by_tuple]


@examples(2)
@given(st.data(), st.sampled_from([pa.bool_(), pa.int64(), pa.string(), pa.binary()]))
def test_packed_values_sort_as_values(data: st.DataObject, kind: pa.DataType) -> None:
    values = data.draw(st.lists(VALUES[kind]))
    packed = pa.array(sorted(pack([pa.array(values, kind)]).to_pylist()), pa.binary())
    assert unpack(packed, [kind])[0].to_pylist() == sorted(values)  # type: ignore[type-var]


def test_what_lies_under_nulls_is_not_packed() -> None:
    valid = pa.py_buffer(b"\x05")
    text = [valid, pa.py_buffer(np.array([0, 1, 3, 4], np.int32)), pa.py_buffer(b"a\0\0b")]
    numbers = [valid, pa.py_buffer(np.array([1, 2**60, 3]))]
    columns = [
        pa.Array.from_buffers(pa.string(), 3, text),
        pa.Array.from_buffers(pa.int64(), 3, numbers),
        pa.Array.from_buffers(pa.float64(), 3, numbers),
    ]
    assert pack(columns).to_pylist() == [fdb.tuple.pack(row) for row in rows_of(columns)]


def test_large_batches_of_many_blocks() -> None:
    rows = 2 * BLOCK_ROWS + 17
    columns = [
        pa.array(range(-5, rows - 5), pa.int64()),
        pa.array(["v\0" * (i % 50) if i % 7 else None for i in range(rows)], pa.string()),
        pa.array([i / 3 if i % 5 else None for i in range(rows)], pa.float64()),
    ]
    packed = pack(columns)
    assert packed.to_pylist() == [fdb.tuple.pack(row) for row in rows_of(columns)]
    assert unpack(packed, types_of(columns)) == columns


@pytest.mark.parametrize("length", [62, 63, 64, 65, 127, 128, 4096, 100_000])
def test_long_texts(length: int) -> None:
    texts = [b"a" * length, b"\0" * length, b"", b"\xff\0" * length, b"b" * length]
    column = pa.array(texts, pa.binary())
    packed = pack([column, column])
    assert packed.to_pylist() == [fdb.tuple.pack((text, text)) for text in texts]
    assert unpack(packed, [pa.binary()] * 2) == [column, column]


def test_empty_batches() -> None:
    columns = [pa.array([], kind) for kind in TYPES]
    packed = pack(columns)
    assert packed == pa.array([], pa.binary())
    assert unpack(packed, TYPES) == columns


def test_no_elements() -> None:
    assert unpack(pa.array([b"", b""]), []) == []
    with pytest.raises(TupleError, match="row 1, byte 0: more bytes"):
        unpack(pa.array([b"", b"\x14"]), [])


# What unpack refuses

INT, FLOAT, BOOL, TEXT, RAW = pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.binary()


@pytest.mark.parametrize(
    ("packed", "types", "offset", "reason"),
    [
        ("", [INT], 0, "the tuple ends before all of its elements"),
        ("15 01", [INT, INT], 2, "the tuple ends before all of its elements"),
        ("14 15 01", [INT], 1, "more bytes than the tuple's elements take"),
        ("02 61 00 00", [TEXT], 3, "more bytes than the tuple's elements take"),
        ("ff", [INT], 0, "expected int64, found unknown type code 0xff"),
        ("14 03", [INT, TEXT], 1, "expected string, found unknown type code 0x03"),
        ("02 61 00", [INT], 0, "expected int64, found a string"),
        ("02 61 00", [RAW], 0, "expected binary, found a string"),
        ("01 61 00", [TEXT], 0, "expected string, found bytes"),
        ("15 01", [FLOAT], 0, "expected double, found an integer"),
        ("13 01", [BOOL], 0, "expected bool, found an integer"),
        ("26", [INT], 0, "expected int64, found a bool"),
        ("14", [pa.null()], 0, "expected null, found an integer"),
        ("20 80 00 00 00", [FLOAT], 0, "expected double, found a float32"),
        ("05 00", [TEXT], 0, "expected string, found a nested tuple"),
        ("30" + "00" * 16, [TEXT], 0, "expected string, found a UUID"),
        ("33" + "00" * 12, [RAW], 0, "expected binary, found a 96-bit versionstamp"),
        ("1d 09 01" + "00" * 8, [INT], 0, "expected int64, found an integer that does not fit int64"),
        ("0b f6 fe" + "ff" * 8, [INT], 0, "expected int64, found an integer that does not fit int64"),
        ("27 16 01", [BOOL, INT], 1, "truncated int64"),
        ("1c 7f ff ff ff ff ff ff", [INT], 0, "truncated int64"),
        ("12 fe", [INT], 0, "truncated int64"),
        ("21 80 00 00 00 00 00 00", [FLOAT], 0, "truncated double"),
        ("21", [FLOAT], 0, "truncated double"),
        ("02", [TEXT], 0, "unterminated string"),
        ("14 02 61", [INT, TEXT], 1, "unterminated string"),
        ("01 61 00 ff", [RAW], 0, "unterminated binary"),
        ("02 80 00", [TEXT], 0, "invalid UTF-8"),
        ("14 02 c3 00 ff a9 00", [INT, TEXT], 1, "invalid UTF-8"),
        ("02 ed a0 80 00", [TEXT], 0, "invalid UTF-8"),
        ("02 c0 80 00", [TEXT], 0, "invalid UTF-8"),
        ("02 f4 90 80 80 00", [TEXT], 0, "invalid UTF-8"),
        ("1c 80 00 00 00 00 00 00 00", [INT], 0, "an integer that does not fit int64"),
        ("0c 7f ff ff ff ff ff ff fe", [INT], 0, "an integer that does not fit int64"),
        ("15 00", [INT], 0, "an integer in more bytes than it needs"),
        ("16 00 ff", [INT], 0, "an integer in more bytes than it needs"),
        ("1c 00 ff ff ff ff ff ff ff", [INT], 0, "an integer in more bytes than it needs"),
        ("13 ff", [INT], 0, "an integer in more bytes than it needs"),
        ("12 ff 00", [INT], 0, "an integer in more bytes than it needs"),
    ],
)
@pytest.mark.parametrize("large", [False, True])
def test_malformed_tuples(
    packed: str, types: list[pa.DataType], offset: int, reason: str, large: bool
) -> None:
    if large:
        types = [{TEXT: pa.large_string(), RAW: pa.large_binary()}.get(kind, kind) for kind in types]
        reason = reason.replace("expected string", "expected large_string").replace(
            "expected binary", "expected large_binary"
        )
        reason = reason.replace("unterminated ", "unterminated large_")
    good = pack([pa.array([None], kind) for kind in types]).to_pylist()
    with pytest.raises(TupleError) as raised:
        unpack(pa.array(good * 2 + [bytes.fromhex(packed)] + good), types)
    assert raised.value.message == f"row 2, byte {offset}: {reason}"
    assert (raised.value.row, raised.value.offset) == (2, offset)
    assert raised.value.__cause__ is None


def test_a_terminator_is_no_escape_because_of_the_next_row() -> None:
    with pytest.raises(TupleError, match="row 1, byte 0: expected string, found unknown type code 0xff"):
        unpack(pa.array([b"\x02a\x00", b"\xff\x00"]), [pa.string()])


def test_a_text_does_not_run_into_the_next_row() -> None:
    with pytest.raises(TupleError, match="row 0, byte 0: unterminated string"):
        unpack(pa.array([b"\x02a", b"\x02b\x00"]), [pa.string()])


def test_a_number_does_not_run_into_the_next_row() -> None:
    with pytest.raises(TupleError, match="row 0, byte 0: truncated int64"):
        unpack(pa.array([b"\x16\x01", b"\x15\x01"]), [pa.int64()])


def test_bytes_outside_of_a_slice_are_not_read() -> None:
    packed = pa.array([b"\xff", b"\x02a\x00", b"\xff"])
    assert unpack(packed.slice(1, 1), [pa.string()]) == [pa.array(["a"])]


def test_a_null_instead_of_a_tuple() -> None:
    with pytest.raises(TupleError, match="row 1, byte 0: null instead of a packed tuple") as raised:
        unpack(pa.array([b"\x14", None]), [pa.int64()])
    assert (raised.value.row, raised.value.offset) == (1, 0)


@pytest.mark.parametrize("block", [1, 2, 100])
@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_first_bad_row_is_reported(order: tuple[int, ...], block: int) -> None:
    """Whichever of its checks and columns each fails: they are not found in the order of the rows."""
    bad = [b"\xff", b"\x14\x02a", b"\x14\x02\x80\x00", None]
    faults = ["row 1, byte 0: ", "row 1, byte 1: unterm", "row 1, byte 1: invalid", "row 1, byte 0: null"]
    rows = [b"\x14\x02a\x00", *(bad[i] for i in order)]
    with blocks_of(block), pytest.raises(TupleError, match=faults[order[0]]) as raised:
        unpack(pa.array(rows, pa.binary()), [pa.int64(), pa.string()])
    assert raised.value.row == 1


@pytest.mark.parametrize(("row", "types"), SAMPLES)
def test_every_truncation(row: Row, types: list[pa.DataType]) -> None:
    packed = fdb.tuple.pack(row)
    for length in range(len(packed)):
        check_against_reference([packed[:length], packed], types)


@pytest.mark.parametrize(("row", "types"), SAMPLES)
def test_every_change_of_one_byte(row: Row, types: list[pa.DataType]) -> None:
    packed = fdb.tuple.pack(row)
    changed = [
        packed[:i] + bytes([byte]) + packed[i + 1 :] for i in range(len(packed)) for byte in range(256)
    ]
    check_against_reference([one for one in changed if is_well_formed(one, types)], types)
    for one in changed:
        if not is_well_formed(one, types):
            check_against_reference([one], types)


@examples(6)
@given(damaged_batches(), block_sizes)
def test_damaged_batches(batch: tuple[list[bytes], list[pa.DataType]], block: int) -> None:
    with blocks_of(block):
        check_against_reference(*batch)


@examples(4)
@given(
    st.lists(st.binary(max_size=12), min_size=1, max_size=4),
    st.lists(st.sampled_from(list(PYTHON_TYPES)), min_size=1, max_size=3),
)
@example([b"\x02\x00\xff\x00", b"\xff"], [TEXT])
def test_random_bytes(packed: list[bytes], types: list[pa.DataType]) -> None:
    check_against_reference(packed, types)


# What no batch can hold


def large_zeros(*offsets: int) -> pa.Array:
    """Texts of so many zeros, of which only those that are read take memory."""
    buffers = [None, pa.py_buffer(np.array(offsets)), pa.py_buffer(np.zeros(offsets[-1], np.uint8))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def test_a_batch_of_over_2_gib_is_refused() -> None:
    with pytest.raises(ValueError, match="at most 2147483647: pack fewer rows at once"):
        pack([large_zeros(0, 2**31)])
    half = large_zeros(0, 2**30)
    with pytest.raises(ValueError, match="at least 2147483648 bytes"):
        pack([half, half])


def test_a_short_slice_from_beyond_2_gib() -> None:
    column = large_zeros(0, 2**31, 2**31 + 1).slice(1)
    assert pack([column]).to_pylist() == [fdb.tuple.pack((b"\0",))]


@pytest.mark.parametrize(
    ("columns", "size"),
    [
        ([pa.array([5, 6], pa.int64())], 4),
        ([pa.array(["abc", None, "de"])], 10),
        ([pa.array(["\0\0\0"])], 8),
        ([pa.array([b"\0", b"a"]), pa.array([300, None], pa.int64())], 11),
    ],
)
@pytest.mark.parametrize("block", [1, 100])
def test_the_limit_counts_every_byte(
    columns: list[pa.Array], size: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with blocks_of(block):
        monkeypatch.setattr(packing, "MAX_BATCH_BYTES", size)
        assert sum(map(len, pack(columns).to_pylist())) == size
        monkeypatch.setattr(packing, "MAX_BATCH_BYTES", size - 1)
        with pytest.raises(ValueError, match=f"at most {size - 1}"):
            pack(columns)


@pytest.mark.parametrize(
    ("column", "writer"),
    [(pa.array([b"\0\0\0"]), (pc, "replace_substring")), (pa.array([500, 600]), (packing, "binary_array"))],
)
def test_offsets_are_checked_before_they_overflow(
    column: pa.Array, writer: tuple[object, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "MAX_BATCH_BYTES", 5)
    with patch.object(*writer) as write, pytest.raises(ValueError, match="take at least 6 bytes"):
        pack([column])
    write.assert_not_called()


# What is no column of tuples


def test_arguments_that_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one column"):
        pack([])
    with pytest.raises(ValueError, match=r"different lengths: \[1, 2\]"):
        pack([pa.array([1]), pa.array([1, 2])])
    with pytest.raises(TypeError, match="int32 cannot be an element"):
        pack([pa.array([1], pa.int32())])
    with pytest.raises(TypeError, match=r"a pyarrow\.Array, not ChunkedArray"):
        pack([pa.chunked_array([[1]])])
    with pytest.raises(TypeError, match=r"date32\[day\] cannot be an element"):
        unpack(pa.array([b"\x14"]), [pa.date32()])
    with pytest.raises(TypeError, match=r"a pyarrow\.BinaryArray, not StringArray"):
        unpack(pa.array(["a"]), [pa.string()])
