"""Remembers the keys that a transaction has seen, with 16 bytes per key however long the keys are.

The protocol allows a key once in a transaction. To hold both sides to that, each remembers a 128-bit
digest of every key, in sorted arrays that are merged as they grow, so a transaction of millions of keys
costs tens of megabytes and some numpy calls per message.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from headrace.protocol.packed_rows import pack_rows

UInt64s = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]

# Runs longer than this are not merged any more: for a moment a merge takes thrice what it merges.
LARGEST_MERGED = 1 << 18

# Drawn anew in each process, so that nobody can make up keys that collide.
_digest = partial(xxhash.xxh3_128_digest, seed=secrets.randbits(64))


@dataclass(frozen=True)
class KeyDigests:
    """The digests of a batch of keys, in the batch's order, as two halves."""

    high: UInt64s
    low: UInt64s

    def __len__(self) -> int:
        return len(self.high)

    def take(self, positions: Positions) -> KeyDigests:
        return KeyDigests(self.high[positions], self.low[positions])


def digest_keys(keys: pa.RecordBatch) -> KeyDigests:
    packed = pack_rows(keys).to_numpy(zero_copy_only=False)
    halves = np.frombuffer(b"".join(map(_digest, packed)), dtype=np.uint64).reshape(-1, 2)
    return KeyDigests(np.ascontiguousarray(halves[:, 0]), np.ascontiguousarray(halves[:, 1]))


class _Run:
    """Digests sorted by their high half, each with a mark."""

    def __init__(self, digests: KeyDigests, marked: Bools) -> None:
        self.digests = digests
        self.marked = marked

    def __len__(self) -> int:
        return len(self.digests)

    def find(self, digests: KeyDigests) -> tuple[Bools, Positions]:
        """Returns whether each digest is here, and where. Sorted digests are looked up several times
        faster."""
        high, low, last = self.digests.high, self.digests.low, len(self) - 1
        at = np.minimum(np.searchsorted(high, digests.high), last)
        # If two keys share a high half, the wanted one may be the second.
        while (passing := (high[at] == digests.high) & (low[at] != digests.low) & (at < last)).any():
            at[passing] += 1
        found = (high[at] == digests.high) & (low[at] == digests.low)
        return found, at

    def merged(self, other: _Run) -> _Run:
        digests = KeyDigests(
            np.concatenate([self.digests.high, other.digests.high]),
            np.concatenate([self.digests.low, other.digests.low]),
        )
        order = _sorted_order(digests)
        return _Run(digests.take(order), np.concatenate([self.marked, other.marked])[order])


class SeenKeys:
    """The keys of one binding in one transaction, each of which can be marked once."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def add(self, digests: KeyDigests) -> int | None:
        """Remembers the keys, or returns the position of one that was there already, and remembers none."""
        if len(digests) == 0:
            return None
        order = _sorted_order(digests)
        ordered = digests.take(order)
        repeated = _same_as_before(ordered)
        for run in self._runs:
            repeated |= run.find(ordered)[0]
        if repeated.any():
            return int(order[repeated].min())
        fresh = _Run(ordered, np.zeros(len(ordered), dtype=np.bool_))
        # Merging runs of like size keeps their number small, and each key's copies few.
        while self._runs and len(self._runs[-1]) <= min(2 * len(fresh), LARGEST_MERGED):
            fresh = self._runs.pop().merged(fresh)
        self._runs.append(fresh)
        return None

    def mark(self, digests: KeyDigests) -> tuple[int | None, int | None]:
        """Marks the keys, or returns the position of one that is not here or was marked already."""
        order = _sorted_order(digests)
        ordered = digests.take(order)
        known = np.zeros(len(ordered), dtype=np.bool_)
        repeated = _same_as_before(ordered)
        for run in self._runs:
            found, at = run.find(ordered)
            repeated |= found & run.marked[at]
            known |= found
            run.marked[at[found]] = True
        if repeated.any():
            return None, int(order[repeated].min())
        if not known.all():
            return int(order[~known].min()), None
        return None, None


def _sorted_order(digests: KeyDigests) -> Positions:
    # Stable, since that merges two sorted runs in one pass.
    order = np.argsort(digests.high, kind="stable")
    high = digests.high[order]
    if (high[1:] == high[:-1]).any():  # a key that is repeated, or two that share a half
        order = np.lexsort((digests.low, digests.high))
    return order


def _same_as_before(ordered: KeyDigests) -> Bools:
    """Returns which digests equal the one before them."""
    same = np.zeros(len(ordered), dtype=np.bool_)
    same[1:] = (ordered.high[1:] == ordered.high[:-1]) & (ordered.low[1:] == ordered.low[:-1])
    return same
