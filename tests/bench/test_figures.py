"""What the figures mean."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from headrace.bench.figures import CURVE, Latency, Measurement, Run, Tier, percentile
from headrace.bench.ratios import DELIVERED, FLOOR, KAFKA, OURS, ratios


def tier(p50: float, p99: float, per_second: float = 100.0) -> Tier:
    return Tier(10, per_second, 1.0, Latency(10, p50, p99, p99, p99, (p99,)))


def measured(contender: str, tiers: dict[str, Tier], rate: float | None = 10.0) -> Measurement:
    return Measurement("single", contender, rate, 1, Run(1, 10, tiers))


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = np.array([4.0, 1.0, 3.0, 2.0])
    assert [percentile(values, share) for share in (0.0, 0.25, 0.5, 0.51, 0.99, 1.0)] == [1, 1, 2, 3, 4, 4]


def test_latencies_are_in_milliseconds() -> None:
    latency = Latency.of(np.arange(1, 1001) / 1000)
    assert (latency.count, latency.p50, latency.p90, latency.p99) == (1000, 500, 900, 990)
    assert latency.max == pytest.approx(1000)
    assert len(latency.curve) == len(CURVE)
    assert list(latency.curve) == sorted(latency.curve)


def test_a_run_survives_its_way_through_json() -> None:
    run = Run(2, 20, {"MEMORY": tier(1.0, 2.0)}, rates=(10.0, 40.0))
    assert Run.from_json(asdict(run)) == run
    assert run.fairness == 0.25


def test_each_peer_is_compared_at_the_tier_that_it_has() -> None:
    ours = measured(OURS, {"MEMORY": tier(2.0, 6.0), "LOCAL_DISK": tier(3.0, 8.0)})
    floor, kafka = measured(FLOOR, {"MEMORY": tier(1.0, 2.0)}), measured(KAFKA, {DELIVERED: tier(6.0, 16.0)})
    found = {(ratio.peer, ratio.what): ratio.ratio for ratio in ratios([ours, floor, kafka])}
    assert found == {
        (FLOOR, "p50 of MEMORY"): 2.0,
        (FLOOR, "p99 of MEMORY"): 3.0,
        (KAFKA, "p50 of LOCAL_DISK"): 0.5,
        (KAFKA, "p99 of LOCAL_DISK"): 0.5,
    }


def test_rates_are_compared_where_none_was_offered() -> None:
    ours = measured(OURS, {"MEMORY": tier(1.0, 1.0, 50.0)}, rate=None)
    floor = measured(FLOOR, {"MEMORY": tier(1.0, 1.0, 200.0)}, rate=None)
    assert [(ratio.what, ratio.ratio) for ratio in ratios([ours, floor])] == [("rate to MEMORY", 0.25)]


def test_other_loads_are_not_compared() -> None:
    ours = measured(OURS, {"MEMORY": tier(1.0, 1.0)}, rate=10.0)
    assert ratios([ours, measured(FLOOR, {"MEMORY": tier(1.0, 1.0)}, rate=20.0)]) == []
