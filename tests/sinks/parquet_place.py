"""A folder of Parquet files: sinks for it, and what others see in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
from pyspark.sql import DataFrame

from headrace.sinks.contract import Place
from headrace.sinks.parquet import ParquetSink
from tests.sinks.conftest import an_epoch


def sink_of(folder: Path, **how: Any) -> ParquetSink:
    """A new one each time, as in a new process."""
    return ParquetSink("dead", Place(folder.as_uri(), "view", **how))


def committed(folder: Path, number: int, frame: DataFrame, **how: Any) -> None:
    sink_of(folder, **how).commit(number, sink_of(folder, **how).prepare(an_epoch(number), frame))


def values(folder: Path) -> list[int]:
    """As a reader sees the folder who knows nothing of us."""
    if not folder.exists():
        return []
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    return sorted(table["value"].to_pylist()) if "value" in table.column_names else []


def staged(folder: Path) -> list[str]:
    return (
        sorted(path.name for path in (folder / "_staged").iterdir()) if (folder / "_staged").exists() else []
    )
