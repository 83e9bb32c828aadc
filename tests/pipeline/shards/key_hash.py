"""The hash of a key, computed without Spark: Spark's own `hash()`, to which docs/shards.md holds us.

It is Murmur3 of 32 bits with seed 42, where the hash of a field is the seed of the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from headrace.model.collections import Field
from headrace.model.field_types import FieldType, Kind

SEED = 42
_MASK = 0xFFFFFFFF
_LONG_DIGITS = 18  # decimals of so many digits are hashed as 64-bit integers
_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def key_hash(fields: Sequence[Field], key: Iterable[Any]) -> int:
    """Of the values of a key's fields, from 0 to 2**32 - 1."""
    seed = SEED
    for field, value in zip(fields, key, strict=True):
        seed = _hash_value(field.type, value, seed)
    return seed


def hash_int(value: int, seed: int = SEED) -> int:
    return _finish(_mix(seed, value & _MASK), 4)


def hash_long(value: int, seed: int = SEED) -> int:
    return _finish(_mix(_mix(seed, value & _MASK), (value >> 32) & _MASK), 8)


def hash_bytes(data: bytes, seed: int = SEED) -> int:
    whole = len(data) - len(data) % 4
    mixed = seed
    for begin in range(0, whole, 4):
        mixed = _mix(mixed, int.from_bytes(data[begin : begin + 4], "little"))
    for byte in data[whole:]:  # not as Murmur3 has it: each of them as a signed word of its own
        mixed = _mix(mixed, (byte - 256 if byte > 127 else byte) & _MASK)
    return _finish(mixed, len(data))


def _hash_value(kind: FieldType, value: Any, seed: int) -> int:
    match kind.kind:
        case Kind.BOOLEAN:
            return hash_int(int(value), seed)
        case Kind.INTEGER:
            return hash_long(value, seed)
        case Kind.STRING:
            return hash_bytes(value.encode(), seed)
        case Kind.DATE:
            return hash_int((value - _EPOCH_DAY).days, seed)
        case Kind.DATE_TIME:
            return hash_long((value - _EPOCH) // timedelta(microseconds=1), seed)
        case Kind.DECIMAL:
            unscaled = int(Decimal(value).scaleb(kind.scale))
            if kind.precision <= _LONG_DIGITS:
                return hash_long(unscaled, seed)
            # Two's complement, in as few bytes as it takes.
            length = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
            return hash_bytes(unscaled.to_bytes(length, "big", signed=True), seed)
    raise TypeError(f"a key cannot be {kind}")


def _mix(state: int, word: int) -> int:
    word = (word * 0xCC9E2D51) & _MASK
    word = ((word << 15) | (word >> 17)) & _MASK
    word = (word * 0x1B873593) & _MASK
    state ^= word
    state = ((state << 13) | (state >> 19)) & _MASK
    return (state * 5 + 0xE6546B64) & _MASK


def _finish(state: int, length: int) -> int:
    state ^= length
    state = ((state ^ (state >> 16)) * 0x85EBCA6B) & _MASK
    state = ((state ^ (state >> 13)) * 0xC2B2AE35) & _MASK
    return state ^ (state >> 16)
