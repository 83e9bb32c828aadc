"""Log sequence numbers: how they are dealt out so that none is ever used twice."""

from __future__ import annotations

EPOCH_BITS = 36
"""An epoch has 2**36 LSNs, so that 2**17 epochs stay below 2**53, up to where all JSON readers agree."""

RESERVED_AT_ONCE = 1 << 20
"""Numbers are set aside in blocks of this size before the first of a block is given away. A restart skips
what is left of a block: its writes may have been acknowledged in memory."""


def first_lsn_of(epoch: int) -> int:
    """The first number of an epoch; LSNs start at 1.

    A server that finds its disk gone cannot know which numbers it had given away, so it starts a new epoch.
    """
    return max(epoch << EPOCH_BITS, 1)


def last_lsn_of(epoch: int) -> int:
    return first_lsn_of(epoch + 1) - 1
