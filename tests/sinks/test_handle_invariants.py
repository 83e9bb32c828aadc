"""Invariant 12 of docs/invariants.md, for files and tables: an epoch that is committed again."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.ingest.iceberg.settings import CatalogSettings
from headrace.sinks.contract import Place
from headrace.sinks.registry import find_sink
from tests.sinks.conftest import Rows, an_epoch
from tests.sinks.iceberg_world import make_settings


@pytest.fixture(scope="module")
def catalog_settings(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> CatalogSettings:
    return make_settings(spark, tmp_path_factory.mktemp("catalog"))


def values(format_name: str, place: Place) -> list[int]:
    batches = find_sink(format_name).read(place, ["value"], None)
    return sorted(value for batch in batches for value in batch.column("value").to_pylist())


@pytest.mark.parametrize("format_name", ["parquet", "delta", "iceberg", "hudi"])
def test_a_commit_by_somebody_else_is_found_from_the_handle_alone(
    format_name: str,
    spark: SparkSession,
    rows: Rows,
    catalog_settings: CatalogSettings,
    tmp_path: Path,
) -> None:
    """Invariant 12. The configuration now names another location, and the process that prepared has ended."""
    if format_name == "iceberg":
        place = Place("some space.orders", "view", catalog=catalog_settings)
        moved = Place("some space.moved", "view", catalog=catalog_settings)
    else:
        place = Place((tmp_path / "orders").as_uri(), "view")
        moved = Place((tmp_path / "moved").as_uri(), "view")
    kind = find_sink(format_name)
    sink = kind.open("rows", place, spark)
    handle = sink.prepare(an_epoch(0), rows(0, 2).select("epoch", "value"))
    sink.commit(0, handle)

    late = kind.open("rows", moved, spark)
    late.start(0, handle, 2)
    late.commit(0, handle)
    assert values(format_name, place) == [0, 1]
    assert late.committed() is None
