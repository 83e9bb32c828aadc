"""Entries of Spark's offset log."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.spark.checkpoint import OffsetEntry

ENTRY = OffsetEntry('v1\n{"batchTimestampMs": 1763000000250}\n{"orders":{"0":7}}\n-')


def test_an_entry_has_a_line_for_each_source() -> None:
    assert ENTRY.sources == ['{"orders":{"0":7}}', "-"]
    assert ENTRY.position(0) == {"orders": {"0": 7}}
    assert ENTRY.position(1) is None, "nothing of it was read yet"
    assert OffsetEntry("").sources == []


def test_an_entry_knows_when_its_epoch_was_planned() -> None:
    assert ENTRY.planned_at == datetime(2025, 11, 13, 2, 13, 20, 250_000, UTC)
