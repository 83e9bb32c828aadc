"""Shards: ranges of key hashes, and how Spark brings each row to the task of its shard."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from headrace.model.key_range import MAX_KEY_HASH, KeyRange
from headrace.pipeline.key_hash import hash_int

SHARD = "_shard"
_HASHES = MAX_KEY_HASH + 1


def shard_ranges(count: int) -> list[KeyRange]:
    """All hashes, in `count` ranges of the same size (or one more)."""
    begins = [-(-index * _HASHES // count) for index in range(count + 1)]
    return [KeyRange(begin, after - 1) for begin, after in itertools.pairwise(begins)]


def shard_of(key: Sequence[str], count: int) -> str:
    """In SQL, the number of the shard that a key belongs to, which is in these columns."""
    unsigned = f"(cast(hash({', '.join(key)}) as bigint) & {MAX_KEY_HASH}L)"
    return f"cast(shiftright({unsigned} * {count}L, 32) as int)"


def one_partition_each(rows: DataFrame, count: int) -> DataFrame:
    """Rows of shard N in partition N, and in no other."""
    numbers = ", ".join(map(str, _partition_numbers(count)))
    return rows.repartition(count, F.expr(f"element_at(array({numbers}), {SHARD} + 1)"))


@lru_cache
def _partition_numbers(count: int) -> tuple[int, ...]:
    """For each partition an integer that Spark's own hashing puts there."""
    found: dict[int, int] = {}
    number = 0
    while len(found) < count:
        signed = hash_int(number)
        signed -= _HASHES if signed >= _HASHES // 2 else 0
        found.setdefault(signed % count, number)
        number += 1
    return tuple(found[partition] for partition in range(count))
