"""Random arrays of every type that a stream may have."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa

_LETTERS = "ab\0ü\ud7ff\U0001f600 "
_SPECIAL = (0.0, -0.0, 1.5, float("inf"), float("-inf"), float("nan"), 1e300)
_UNITS = ("s", "ms", "us", "ns")
_TO_US = {"s": 1_000_000, "ms": 1_000, "us": 1, "ns": 1}
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}

Values = Callable[[random.Random], Any]


def _integers(bits: int, signed: bool) -> Values:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return lambda chance: chance.choice([low, high, 0, 1, chance.randint(low, high)])


def _text(chance: random.Random) -> str:
    return "".join(chance.choices(_LETTERS, k=chance.choice([0, 1, 5, 12, 13, 40])))


def _bytes(chance: random.Random) -> bytes:
    return chance.randbytes(chance.choice([0, 1, 12, 13, 40]))


def _decimals(digits: int, scale: int) -> Values:
    def value(chance: random.Random) -> Decimal:
        number = chance.randrange(-(10**digits) + 1, 10**digits)
        sign, figures, _ = Decimal(number).as_tuple()
        return Decimal((sign, figures, -scale))

    return value


def _moments(unit: str) -> Values:
    """Those that fit into microseconds, but for one in a hundred."""

    def value(chance: random.Random) -> int:
        if chance.random() < 0.01:
            return chance.choice([2**63 - 1, -(2**63), 1])
        most = (2**63 - 1) // _TO_US[unit]
        number = chance.randint(-most, most)
        return number // 1000 * 1000 if unit == "ns" else number

    return value


def _times(unit: str) -> Values:
    def value(chance: random.Random) -> int:
        number = chance.randrange(_DAY[unit])
        return number // 1000 * 1000 if unit == "ns" and chance.random() < 0.99 else number

    return value


def _days(chance: random.Random) -> int:
    """Those that fit into 32 bits, but for one in a hundred."""
    bits = 36 if chance.random() < 0.01 else 31
    return chance.randint(-(1 << bits), (1 << bits) - 1) * 86_400_000


LEAVES: dict[pa.DataType, Values] = {
    pa.bool_(): lambda chance: chance.random() < 0.5,
    **{getattr(pa, f"int{bits}")(): _integers(bits, True) for bits in (8, 16, 32, 64)},
    **{getattr(pa, f"uint{bits}")(): _integers(bits, False) for bits in (8, 16, 32, 64)},
    pa.float16(): lambda chance: struct.unpack("<e", chance.randbytes(2))[0],
    pa.float32(): lambda chance: struct.unpack("<f", chance.randbytes(4))[0],
    pa.float64(): lambda chance: chance.choice(_SPECIAL),
    pa.string(): _text,
    pa.large_string(): _text,
    pa.string_view(): _text,
    pa.binary(): _bytes,
    pa.large_binary(): _bytes,
    pa.binary_view(): _bytes,
    pa.binary(3): lambda chance: chance.randbytes(3),
    pa.date32(): _integers(32, True),
    pa.date64(): _days,
    **{pa.timestamp(unit): _moments(unit) for unit in _UNITS},
    **{pa.timestamp(unit, "Europe/Berlin"): _moments(unit) for unit in _UNITS},
    pa.timestamp("us", "UTC"): _moments("us"),
    pa.time32("s"): _times("s"),
    pa.time32("ms"): _times("ms"),
    pa.time64("us"): _times("us"),
    pa.time64("ns"): _times("ns"),
    pa.decimal32(7, 2): _decimals(7, 2),
    pa.decimal64(17, 0): _decimals(17, 0),
    pa.decimal128(9, 2): _decimals(9, 2),
    pa.decimal128(38, 38): _decimals(38, 38),
    pa.decimal256(38, 4): _decimals(38, 4),
}
VIEWS = (pa.string_view(), pa.binary_view())


def leaf(chance: random.Random, kind: pa.DataType, rows: int, nulls: float) -> pa.Array:
    values = [None if chance.random() < nulls else LEAVES[kind](chance) for _ in range(rows)]
    if pa.types.is_temporal(kind):
        stored = pa.int32() if kind.bit_width == 32 else pa.int64()
        return pa.array(values, stored).view(kind)
    return pa.array(values, kind)


def array(chance: random.Random, depth: int, rows: int) -> pa.Array:
    """An array of a random type, nested at most so deep."""
    nulls = chance.choice([0.0, 0.0, 0.3, 1.0])
    if not depth or chance.random() < 0.4:
        found = leaf(chance, chance.choice(list(LEAVES)), rows, nulls)
        # Those of views pyarrow cannot write out, and we can.
        return _dictionary(chance, found) if found.type not in VIEWS and chance.random() < 0.2 else found
    mask = pa.array([chance.random() < nulls for _ in range(rows)], pa.bool_())
    sizes = [chance.choice([0, 1, 3]) for _ in range(rows)]
    ends = [sum(sizes[:end]) for end in range(rows + 1)]
    match chance.randrange(5):
        case 0:
            values = array(chance, depth - 1, ends[-1])
            return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), values, mask=mask)
        case 1:
            values = array(chance, depth - 1, ends[-1])
            return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values, mask=mask)
        case 2:
            size = chance.choice([1, 2])  # pyarrow divides by it
            values = array(chance, depth - 1, rows * size)
            return pa.FixedSizeListArray.from_arrays(values, type=pa.list_(values.type, size), mask=mask)
        case 3:
            columns = [array(chance, depth - 1, rows) for _ in range(chance.choice([1, 3]))]
            names = [f"f{index}" for index in range(len(columns))]
            return pa.StructArray.from_arrays(columns, names=names, mask=mask)
        case _:
            keys = leaf(chance, chance.choice([pa.string(), pa.int16(), pa.uint64()]), ends[-1], 0.0)
            values = array(chance, depth - 1, ends[-1])
            return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, values, mask=mask)


def _dictionary(chance: random.Random, values: pa.Array) -> pa.Array:
    """Of other values than the rows are, some of them null or in no row."""
    rows = len(values)
    kinds = [pa.int16(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64()]
    index = chance.choice(kinds if rows > 127 else [pa.int8(), pa.uint8(), *kinds])
    indices = [None if chance.random() < 0.2 or not rows else chance.randrange(rows) for _ in range(rows)]
    return pa.DictionaryArray.from_arrays(pa.array(indices, index), values)


def batch(chance: random.Random) -> pa.RecordBatch:
    rows = chance.choice([1, 2, 7, 8, 9, 60])
    columns = [array(chance, 3, rows) for _ in range(chance.choice([1, 2, 5]))]
    found = pa.record_batch(columns, names=[f"c{index}" for index in range(len(columns))])
    start = chance.choice([0, 0, rows // 3])
    return found.slice(start)
