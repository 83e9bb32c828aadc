"""What is said of an epoch."""

from __future__ import annotations

from datetime import UTC, datetime

from headrace.pipeline.progress import EpochProgress


def test_a_slow_sink_names_itself() -> None:
    progress = EpochProgress(3, datetime(2026, 11, 16, tzinfo=UTC), 1, read=60, good=60)
    progress.sinks = {"lake.orders": 60, "events.orders": 58}
    progress.staging_ms = {"lake.orders": 120, "events.orders": 41_000}
    progress.total_ms = 42_000
    assert "; 60 to lake.orders in 120 ms; 58 to events.orders in 41,000 ms; " in progress.line()
    assert progress.to_json()["staging_ms"] == progress.staging_ms
