"""Spark's daemon of Python workers, with what a shard's transaction needs imported before it forks them.

A worker that Spark starts is made anew after a minute without work, and cleans up after each task. With its
own daemon it imports everything again each time, and its cleaning looks through all that was imported.
"""

from __future__ import annotations

import gc
import sys

# Spark puts archives in front that hold pyspark, which is installed, and classes of Java. Before each task
# their directories would be read again.
sys.path[:] = [entry for entry in sys.path if not entry.endswith((".zip", ".jar"))]

import pyspark.sql.pandas.serializers  # noqa: E402, F401
from pyspark.daemon import manager  # noqa: E402

import headrace.pipeline.combine.workers  # noqa: E402
import headrace.pipeline.shards.task  # noqa: E402
import headrace.sinks.file_reading  # noqa: E402
import headrace.sinks.staged_files  # noqa: E402, F401

if __name__ == "__main__":
    gc.collect()
    gc.freeze()
    manager()  # type: ignore[no-untyped-call]
