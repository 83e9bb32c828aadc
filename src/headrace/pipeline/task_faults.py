"""A point in the tasks that write a sink's rows, where no code of ours may run otherwise."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from headrace.faults import VARIABLE, reached

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def with_point(frame: DataFrame, point: str) -> DataFrame:
    """The same rows, which pass the point on their way; the frame itself unless faults are looked for."""
    if VARIABLE not in os.environ:
        return frame
    return frame.mapInArrow(partial(_pass, point), frame.schema)


def _pass(point: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch
        reached(point)
