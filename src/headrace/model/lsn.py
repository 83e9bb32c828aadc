"""Log sequence numbers, and how they are assigned so that none is ever used twice."""

from __future__ import annotations

TERM_BITS = 36
"""A term has 2**36 LSNs, so that 2**17 terms stay below 2**53, the limit for integers in many JSON readers.
"""

RESERVED_AT_ONCE = 1 << 20
"""Numbers are reserved in blocks of this size before the first number of a block is assigned. A restart skips
the rest of a block: its writes may have been acknowledged in memory."""


def first_lsn_of(term: int) -> int:
    """Returns the first LSN of a term; LSNs start at 1.

    A server that has lost its disk cannot know which numbers it had assigned, so it starts a new term.
    """
    return max(term << TERM_BITS, 1)


def last_lsn_of(term: int) -> int:
    return first_lsn_of(term + 1) - 1
