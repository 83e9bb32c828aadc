"""Log sequence numbers: how they are dealt out so that none is ever used twice."""

from __future__ import annotations

TERM_BITS = 36
"""A term has 2**36 LSNs, so that 2**17 terms stay below 2**53, up to where all JSON readers agree."""

RESERVED_AT_ONCE = 1 << 20
"""Numbers are set aside in blocks of this size before the first of a block is given away. A restart skips
what is left of a block: its writes may have been acknowledged in memory."""


def first_lsn_of(term: int) -> int:
    """The first number of a term; LSNs start at 1.

    A server that finds its disk gone cannot know which numbers it had given away, so it starts a new term.
    """
    return max(term << TERM_BITS, 1)


def last_lsn_of(term: int) -> int:
    return first_lsn_of(term + 1) - 1
