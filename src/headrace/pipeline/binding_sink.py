"""One binding's rows in one sink: made from what the epoch has combined, prepared, and counted."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import UnexpectedFailure
from headrace.faults import reached
from headrace.model.checkpoints import JsonObject
from headrace.model.ownership import Target
from headrace.pipeline.sink_rows import SinkRows
from headrace.pipeline.task_faults import with_point
from headrace.sinks.contract import Epoch, Place, RowSink, Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation

# Spark tells it within milliseconds of a write's end; not at all if an optimizer has dropped the counting.
_COUNTED_WITHIN = 60.0
# The same where nothing was written, and so perhaps nothing was counted.
_NOTHING_COUNTED_WITHIN = 2.0
COUNTING = "headrace-counting"
"""The name of threads that wait for Spark's counts."""


class CombinedRows(Protocol):
    """What this sink needs of an epoch's rows."""

    @property
    def combined(self) -> list[DataFrame]:
        """For each binding, one row per key."""

    @property
    def good(self) -> tuple[int, ...] | None:
        """How many rows of each binding went into them, if that is known."""


@dataclass(frozen=True)
class Written:
    """What a sink has written in an epoch."""

    rows: int = 0
    keys: int = 0
    documents: int = 0
    """Good rows that are in it."""


class BindingSink(Sink):
    """A sink of rows, as one of those that commit an epoch together."""

    def __init__(self, sink: RowSink, rows: SinkRows, place: Place, index: int) -> None:
        """`index` is the binding's."""
        self.name = sink.name
        self.place = place
        self.index = index
        self.can_tell = sink.can_tell
        self._sink, self._rows = sink, rows
        self.written = Written()
        """In the last epoch."""
        self.staging_ms = 0
        """How long it took to stage that, with what Spark did for it."""

    def inspect(self) -> Target | None:
        return self._sink.inspect()

    def claim(self, lineage: str, *, adopts: bool) -> None:
        self._sink.claim(self.place.owner(lineage), adopts=adopts)

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        self._sink.start(decided, handle, fence)

    def committed(self) -> JsonObject | None:
        return self._sink.committed()

    def prepare(self, epoch: Epoch, rows: CombinedRows) -> JsonObject:
        combined, counting = _counted(rows.combined[self.index])
        if self._rows.is_view:
            current = None
            if self._rows.is_reduced:
                epoch.wait_for_previous()
                current = self._sink.current()
            frame = self._rows.viewed(combined, current)
        else:
            frame = self._rows.appended(combined, epoch.number)
        reached(f"preparing {self.name}")
        began = time.monotonic()
        handle = self._sink.prepare(epoch, with_point(frame, f"writing {self.name}"))
        self.staging_ms = round(1000 * (time.monotonic() - began))
        reached(f"staged {self.name}")
        try:
            if not handle.get("rows"):
                self._check_nothing(epoch.number, combined, counting)
            self.written = self._check(epoch.number, handle, counting, rows.good)
        except UnexpectedFailure:
            if handle:
                self._sink.abort(epoch.number, handle)
            raise
        return handle

    def _check(
        self, epoch: int, handle: JsonObject, counting: Observation, good: tuple[int, ...] | None
    ) -> Written:
        """That each good row is in a row that was written, and nothing else is."""
        rows = handle.get("rows", 0)
        counts = self._counts(counting) if rows else {}
        written = Written(rows, counts.get("keys") or 0, counts.get("documents") or 0)
        if written.keys != rows:
            raise UnexpectedFailure(
                f"sink {self.name}: {written.keys} keys of epoch {epoch} were combined and {rows} rows were "
                "written: a source gave other rows when it was read again"
            )
        if good is not None and good[self.index] != written.documents:
            raise UnexpectedFailure(
                f"sink {self.name}: {good[self.index]} rows of epoch {epoch} are good and "
                f"{written.documents} were combined: a source gave other rows when it was read again"
            )
        return written

    def _check_nothing(self, epoch: int, combined: DataFrame, counting: Observation) -> None:
        """That there was nothing to write, where the sink says that nothing was written."""
        # `combined` has the counting in it: to look at it ends what still waits for the counts.
        counts = _wait_for(counting, _NOTHING_COUNTED_WITHIN)
        is_empty = combined.isEmpty() if counts is None else not counts.get("keys")
        if not is_empty:
            raise UnexpectedFailure(
                f"sink {self.name}: epoch {epoch} has rows for it and none was written: a source gave other "
                "rows when it was read again, or Spark's workers write where the driver does not look"
            )

    def _counts(self, counting: Observation) -> dict[str, Any]:
        counts = _wait_for(counting, _COUNTED_WITHIN)
        if counts is None:
            raise UnexpectedFailure("Spark has written rows and does not say how many it has combined")
        return counts

    def commit(self, epoch: int, handle: JsonObject) -> None:
        reached(f"committing {self.name}")
        self._sink.commit(epoch, handle)
        reached(f"published {self.name}")

    def abort(self, epoch: int, handle: JsonObject) -> None:
        reached(f"aborting {self.name}")
        self._sink.abort(epoch, handle)

    def undone(self, epoch: int, handle: JsonObject) -> str:
        return self._sink.undone(epoch, handle)

    def rewind(self, epoch: int) -> None:
        self._sink.rewind(epoch)

    def refuse_rewind(self, epoch: int) -> None:
        self._sink.refuse_rewind(epoch)


def _counted(combined: DataFrame) -> tuple[DataFrame, Observation]:
    """The same rows, which are counted while somebody else reads them."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    counting = Observation()
    counts = (F.count(F.lit(1)).alias("keys"), F.sum("_count").alias("documents"))
    return combined.observe(counting, *counts), counting


def _wait_for(counting: Observation, seconds: float) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: found.append(counting.get), name=COUNTING, daemon=True)
    waiting.start()
    waiting.join(seconds)
    return found[0] if found else None
