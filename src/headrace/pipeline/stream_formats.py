"""What a streaming DataFrame that somebody made reads, by the leaves of Spark's plan of it."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

_TABLES = {"org.apache.iceberg.": "iceberg", "org.apache.spark.sql.delta.": "delta"}
UNKNOWN = "a stream"


def format_of(rows: DataFrame) -> str:
    """The format of its source, on which a guarantee depends; `batch` for one that does not stream."""
    if not rows.isStreaming:
        return "batch"
    plan: Any = rows._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = {
        _format_of_leaf(leaf)
        for leaf in (leaves.apply(index) for index in range(leaves.size()))
        if leaf.isStreaming()
    }
    return found.pop() if len(found) == 1 else UNKNOWN


def _format_of_leaf(leaf: Any) -> str:
    kind = leaf.getClass().getSimpleName()
    if kind == "StreamingRelationV2":
        # One that was read as a table has the table's name for its source's.
        table = leaf.table().getClass().getName()
        source = str(leaf.sourceName()).lower()
        return next((name for package, name in _TABLES.items() if table.startswith(package)), source)
    return str(leaf.dataSource().className()).lower() if kind == "StreamingRelation" else UNKNOWN
