"""Proves that a table and the log fit: nothing between them is missing, and both are of one history.

A table records in which segment its last commit ended, and the low-water mark how far each table has to be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from headrace.errors import Fenced, Terminal
from headrace.ingest.low_water import LowWater, LowWaterMark, TableMark
from headrace.ingest.segment_index import SegmentIndex
from headrace.model.lsn import first_lsn_of
from headrace.wal.position import LogPosition
from headrace.wal.segments import Segment

log = logging.getLogger(__name__)


class TableBehind(Terminal):
    """A table lacks writes that the log no longer has."""

    collection: str = ""


def is_of_another_history(
    found: LogPosition,
    term: int,
    segments: Iterable[Segment],
    last_lsn: int,
    released: LogPosition | None = None,
) -> bool:
    """Returns whether a table holds commits that this log does not know, or knows otherwise.

    `segments` are those that the log has, `last_lsn` is the last that it had when it was opened, and
    `released` is what the table recorded when segments were last released. A new term may follow a table of
    an earlier one wherever that is: the LSNs of both are far apart.
    """
    if found.segment is None or found.term is None:  # of an older version, which recorded the LSN alone
        return found.lsn > last_lsn and found.lsn >= first_lsn_of(term)
    if found.term > term:
        return True
    known = {segment.header.number: segment for segment in segments}
    mine = known.get(found.segment.number)
    if mine is not None:
        return mine.mark != found.segment and mine.header.term <= found.term
    if not known or found.segment.number > max(known):
        return found.term == term
    recorded = released.segment if released else None
    return recorded is not None and recorded.number == found.segment.number and recorded != found.segment


class TableCheck:
    """Checks tables against the log. `given_up` names what a person has given up, as `NAME:FIRST-LAST`.

    `on_lost(collection)` is called when that is recorded, before anybody hears of the table's answer.
    """

    def __init__(
        self,
        term: int,
        last_lsn: int,
        index: SegmentIndex,
        mark: LowWaterMark,
        given_up: Collection[str] = (),
        on_lost: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._term, self._last_lsn, self._index, self._mark = term, last_lsn, index, mark
        self._given_up, self._on_lost = given_up, on_lost

    def __call__(self, collection: str, found: LogPosition) -> None:
        """Raises `Fenced` if somebody else has committed, and `TableBehind` if writes are missing."""
        recorded = self._mark.current.tables.get(collection, TableMark())
        if is_of_another_history(found, self._term, self._index.all(), self._last_lsn, recorded.position):
            raise Fenced(
                f"the table of collection {collection!r} is ahead of this log, at {found}: another server "
                "took over, or the data folder is an old copy; stop this one, or start it with a new data "
                "folder"
            )
        if found.lsn < recorded.needed:
            self._lose(collection, found, recorded.needed)

    def _lose(self, collection: str, found: LogPosition, needed: int) -> None:
        first, what = found.lsn + 1, f"{collection}:{found.lsn + 1}-{needed}"
        if what not in self._given_up:
            raise TableBehind(
                f"the table of collection {collection!r} is at LSN {found.lsn}, and the log no longer has "
                f"the writes up to {needed}, which had been in it: bring the table back as it was (was it "
                "dropped, renamed, or restored from an old copy?), or restart the server with "
                f"--accept-loss {what} to go on without them",
                collection=collection,
            )
        log.warning(
            "LSNs %d to %d of collection %r are lost, as --accept-loss says", first, needed, collection
        )

        def without(mark: LowWater) -> LowWater:
            at = TableMark(found, found.lsn)
            return replace(mark.losing(collection, first, needed), tables={**mark.tables, collection: at})

        self._mark.move(without)
        self._on_lost(collection)
