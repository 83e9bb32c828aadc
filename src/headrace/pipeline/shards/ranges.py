"""Shards: ranges of key hashes, and how Spark brings each row to the task of its shard.

The hash of a key is Spark's `hash()`, and must never change: see docs/shards.md.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.model.key_range import MAX_KEY_HASH, KeyRange

SHARD = "_shard"
_HASHES = MAX_KEY_HASH + 1
_MASK = 0xFFFFFFFF


def shard_ranges(count: int) -> list[KeyRange]:
    """All hashes, in `count` ranges of the same size (or one more)."""
    begins = [-(-index * _HASHES // count) for index in range(count + 1)]
    return [KeyRange(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def shard_of(key: Sequence[str], count: int) -> str:
    """Returns in SQL the number of the shard that a key belongs to, which is in these columns."""
    unsigned = f"(cast(hash({', '.join(key)}) as bigint) & {MAX_KEY_HASH}L)"
    return f"cast(shiftright({unsigned} * {count}L, 32) as int)"


def one_partition_each(rows: DataFrame, count: int) -> DataFrame:
    """Rows of shard N in partition N, and in no other."""
    numbers = ", ".join(map(str, _partition_numbers(count)))
    return rows.repartition(count, F.expr(f"element_at(array({numbers}), {SHARD} + 1)"))


@lru_cache
def _partition_numbers(count: int) -> tuple[int, ...]:
    """Finds for each partition an integer that Spark's own hashing puts there."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        signed = _spark_hash(number)
        signed -= _HASHES if signed >= _HASHES // 2 else 0
        found.setdefault(signed % count, number)
        number += 1
    return tuple(found[partition] for partition in range(count))


def _spark_hash(value: int) -> int:
    """Spark's `hash()` of a small integer: Murmur3 of 32 bits with seed 42."""
    word = (value * 0xCC9E2D51) & _MASK
    word = ((word << 15) | (word >> 17)) & _MASK
    state = 42 ^ ((word * 0x1B873593) & _MASK)
    state = ((state << 13) | (state >> 19)) & _MASK
    state = ((state * 5 + 0xE6546B64) & _MASK) ^ 4  # the length in bytes
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)
