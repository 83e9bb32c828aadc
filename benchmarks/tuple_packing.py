"""How fast tuples are packed and unpacked, next to FoundationDB's own Python implementation."""

from __future__ import annotations

import random
import string
import time
from collections.abc import Callable, Sequence

import fdb.tuple
import pyarrow as pa

from headrace.protocol.tuples import pack, unpack


def measure(rows: int = 100_000) -> dict[str, float]:
    """For each shape and for pack and unpack: rows a second, and how many times the reference's."""
    results: dict[str, float] = {}
    for shape, columns in _shapes(rows).items():
        results |= _measure_shape(shape, columns)
    return results


def _measure_shape(shape: str, columns: Sequence[pa.Array]) -> dict[str, float]:
    types = [column.type for column in columns]
    rows = list(zip(*(column.to_pylist() for column in columns), strict=True))
    packed = pack(columns)
    packed_rows = packed.to_pylist()
    pack_times = (
        _best_seconds(lambda: pack(columns), runs=15),
        _best_seconds(lambda: [fdb.tuple.pack(row) for row in rows], runs=3),
    )
    unpack_times = (
        _best_seconds(lambda: unpack(packed, types), runs=15),
        _best_seconds(lambda: [fdb.tuple.unpack(row) for row in packed_rows], runs=3),
    )
    results = {}
    for name, (ours, reference) in {"pack": pack_times, "unpack": unpack_times}.items():
        results[f"{shape} {name} rows/s"] = len(rows) / ours
        results[f"{shape} {name} ratio"] = reference / ours
    return results


def _shapes(rows: int) -> dict[str, list[pa.Array]]:
    chance = random.Random(20)
    ints = pa.array([chance.randrange(-(2**40), 2**40) for _ in range(rows)], pa.int64())
    texts = pa.array(
        ["".join(chance.choices(string.ascii_letters, k=chance.randint(15, 25))) for _ in range(rows)]
    )
    floats = pa.array([chance.gauss(0, 1000) for _ in range(rows)])
    bools = pa.array([chance.random() < 0.5 for _ in range(rows)])
    return {"int": [ints], "string": [texts], "mixed": [ints, texts, floats, bools]}


def _best_seconds(work: Callable[[], object], runs: int) -> float:
    """The best of some runs, because whatever else a machine does only ever adds time."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
