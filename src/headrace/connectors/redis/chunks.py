"""Splits rows into chunks that neither the server nor this process holds too much memory for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

# A chunk is one step of the server's, in which everybody else waits: a few milliseconds of it.
ROWS_AT_ONCE = 1000
BYTES_AT_ONCE = 4 * 1024 * 1024


def chunks(sizes: Iterable[int]) -> Iterator[slice]:
    """Splits rows of these sizes in bytes; the row that exceeds the limit is the last of its chunk."""
    begin = end = size = 0
    for row_size in sizes:
        end += 1
        size += row_size
        if end - begin >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield slice(begin, end)
            begin, size = end, 0
    if end > begin:
        yield slice(begin, end)
