"""FoundationDB's tuple encoding, for a whole batch of rows at once.

A packed tuple is the concatenation of its elements. Each element starts with a type code, and the codes
and values are laid out so that comparing packed tuples byte by byte compares the tuples:

    null     00
    bytes    01, the bytes with every 00 written as 00 FF, then 00
    string   02, its UTF-8 escaped and ended the same way
    integer  14 ± n, then the n bytes of its magnitude, big endian; one's complement if negative
    float64  21, then its bits big endian; the sign bit flipped, or every bit if negative
    bool     26 for false, 27 for true

Other element types of that encoding (float32, UUID, nested tuples, ...) are refused.
"""

from headrace.protocol.tuples.packing import pack
from headrace.protocol.tuples.unpacking import unpack

__all__ = ["pack", "unpack"]
