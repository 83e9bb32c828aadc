"""What a sink has written of a binding is held against what was combined, also if it has written nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Self, cast

import pyarrow as pa
import pytest

from headrace.errors import UnexpectedFailure
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.sinks import COUNTING, BindingSink, EpochRows, SinkRows, Written
from headrace.sinks.contract import Epoch, Place, RowSink
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Saying(RowSink):
    """Says that it has written so many rows; reads them, or does not."""

    name = "lake.orders"

    def __init__(self, rows: int, *, reads: bool) -> None:
        self._rows, self._reads = rows, reads
        self.aborted = 0

    @classmethod
    def open(cls, name: str, place: Place, spark: SparkSession) -> Self:
        raise NotImplementedError

    @classmethod
    def read(cls, place: Place, columns: Sequence[str], epoch: int | None) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def start(self, decided: int | None, handle: JsonObject | None, fence: int) -> None:
        pass

    def prepare(self, epoch: Epoch, rows: DataFrame) -> JsonObject:
        if self._reads:
            rows.write.format("noop").mode("overwrite").save()
        return {"rows": self._rows} if self._rows else {}

    def commit(self, epoch: int, handle: JsonObject) -> None:
        pass

    def abort(self, epoch: int, handle: JsonObject) -> None:
        assert handle, "there is nothing to abort"
        self.aborted += 1

    def rewind(self, epoch: int) -> None:
        pass


class Plain:
    """Rows as they are."""

    is_view = False

    def appended(self, combined: DataFrame, epoch: int) -> DataFrame:
        return combined


def prepare(sink: Saying, rows: DataFrame) -> Written:
    binding = BindingSink(sink, cast(SinkRows, Plain()), Place("here", "m"), 0)
    binding.prepare(Epoch(3, 1, {}, lambda: None), EpochRows([rows]))
    return binding.written


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.range(4).selectExpr("id", "2 as _count")


def test_rows_are_counted(rows: DataFrame) -> None:
    assert prepare(Saying(4, reads=True), rows) == Written(4, 4, 8)
    sink = Saying(3, reads=True)
    with pytest.raises(UnexpectedFailure, match="4 keys of epoch 3 were combined and 3 rows were written"):
        prepare(sink, rows)
    assert sink.aborted == 1


@pytest.mark.parametrize("reads", [True, False])
def test_a_sink_that_says_that_there_was_nothing_is_not_believed(rows: DataFrame, reads: bool) -> None:
    """Such as one whose files were written to disks of Spark's workers, where the driver finds none."""
    with pytest.raises(
        UnexpectedFailure, match=r"lake\.orders: epoch 3 has rows for it and none was written"
    ):
        prepare(Saying(0, reads=reads), rows)
    wait_until(lambda: COUNTING not in [thread.name for thread in threading.enumerate()])


@pytest.mark.parametrize("reads", [True, False])
def test_there_was_nothing(rows: DataFrame, reads: bool) -> None:
    assert prepare(Saying(0, reads=reads), rows.where("id > 10")) == Written()
    wait_until(lambda: COUNTING not in [thread.name for thread in threading.enumerate()])
