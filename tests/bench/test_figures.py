"""What the figures mean."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.bench.figures import (
    CURVE,
    Crowd,
    Latency,
    Results,
    Run,
    Tier,
    jain,
    median_by,
    percentile,
)


def run_with(p99_ms: float) -> Run:
    return Run(1, 10.0, {"MEMORY": Tier(1, 1.0, Latency.of(np.array([p99_ms / 1000])))})


def test_a_percentile_is_a_value_that_was_measured() -> None:
    values = np.array([4.0, 1.0, 3.0, 2.0])
    assert [percentile(values, share) for share in (0.0, 0.25, 0.5, 0.51, 0.99, 1.0)] == [1, 1, 2, 3, 4, 4]


def test_latencies_are_in_milliseconds() -> None:
    latency = Latency.of(np.arange(1, 1001) / 1000)
    assert (latency.count, latency.p50, latency.p90, latency.p99) == (1000, 500, 900, 990)
    assert latency.max == pytest.approx(1000)
    assert len(latency.curve) == len(CURVE)
    assert list(latency.curve) == sorted(latency.curve)


@pytest.mark.parametrize(
    ("rates", "index"),
    [((5.0, 5.0, 5.0), 1.0), ((1.0, 0.0, 0.0, 0.0), 0.25), ((1.0, 3.0), 0.8), ((0.0, 0.0), 1.0)],
)
def test_jains_index(rates: tuple[float, ...], index: float) -> None:
    assert jain(rates) == pytest.approx(index)


def test_fairness_has_the_extremes() -> None:
    crowd = Crowd(2, 1, 40, {"MEMORY": Tier(40, 2.0)}, (10.0, 30.0))
    assert (crowd.fairness.slowest, crowd.fairness.fastest) == (10.0, 30.0)
    assert crowd.per_second("MEMORY") == 20.0


def test_of_several_runs_the_one_in_the_middle_counts() -> None:
    runs = [run_with(9.0), run_with(1.0), run_with(4.0)]
    assert median_by(runs, "MEMORY") is runs[2]
    assert median_by(runs[:1], "MEMORY") is runs[0]


def test_what_was_not_measured_is_not_in_the_json() -> None:
    raw = Results({}, {}, crowd=Crowd(1, 1, 1, {"MEMORY": Tier(1, 1.0)}, (1.0,))).to_json()
    assert raw["crowd"]["tiers"] == {"MEMORY": {"count": 1, "seconds": 1.0}}
    assert "server_cpu_us" not in raw["crowd"]
    assert raw["crowd"]["fairness"]["jain"] == 1.0


def test_a_run_survives_its_way_through_json() -> None:
    run = run_with(3.0)
    raw = Results({}, {}, lag={"stock client": run}).to_json()["lag"]["stock client"]
    assert Run.from_json(raw) == run
