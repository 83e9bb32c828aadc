"""Sinks are found by their format, ours and those of other packages alike."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.sinks.contract import RowSink
from headrace.sinks.registry import find_sink, sink_formats


def test_ours_are_there() -> None:
    assert {"parquet", "iceberg"} <= set(sink_formats())
    assert all(issubclass(find_sink(name), RowSink) for name in sink_formats())


def test_one_that_is_not_there() -> None:
    with pytest.raises(ConfigError, match=r"there is no sink 'csv'; there are .*parquet"):
        find_sink("csv")
