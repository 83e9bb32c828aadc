"""Converts values and keys to the text that Redis stores, which is readable and unambiguous."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.protocol.packed_rows import to_tuple_type

SEPARATOR = ":"


def texts(column: pa.Array) -> pa.StringArray:
    """Returns each value as text, from which it can be parsed without loss; null stays null."""
    return to_tuple_type(column).cast(pa.string())


def redis_keys(prefix: str, keys: pa.RecordBatch) -> list[str]:
    """Returns the prefix and the key's values, joined by colons.

    Within a value a colon is written `%3A` and a percent sign `%25`; so a colon is always a separator, and as
    a key always has the same number of values, two keys never get the same text.
    """
    parts = [
        pc.replace_substring(
            pc.replace_substring(texts(column), pattern="%", replacement="%25"),
            pattern=SEPARATOR,
            replacement="%3A",
        )
        for column in keys.columns
    ]
    joined: list[str] = pc.binary_join_element_wise(pa.scalar(prefix), *parts, SEPARATOR).to_pylist()
    return joined
