"""When a goal counts as met."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.bench.figures import Contender, Crowd, Latency, Results, Run, Tier
from headrace.bench.scenarios import CEILING, COALESCING, OURS
from headrace.bench.verdicts import ratios, verdicts

KAFKA = "Kafka, linger 0"


def latency(ms: float) -> Latency:
    return Latency.of(np.array([ms / 1000]))


def offered(**p99s: float) -> Run:
    tiers = {tier: Tier(1000, 0.1, latency(ms), latency(ms)) for tier, ms in p99s.items()}
    return Run(1000, 10_000.0, tiers)


def ours(memory: float = 1.0, disk: float = 5.0) -> Contender:
    run = offered(MEMORY=memory, LOCAL_DISK=disk, OBJECT_STORAGE=100.0, COMMITTED=900.0)
    return Contender(run, Run(1000, None, {"MEMORY": Tier(1000, 0.1), "LOCAL_DISK": Tier(1000, 0.2)}))


def ceiling(memory: float, seconds: float = 0.1) -> Contender:
    return Contender(offered(MEMORY=memory), Run(1000, None, {"MEMORY": Tier(1000, seconds)}))


def met(results: Results) -> dict[str, bool]:
    return {verdict.what: verdict.met for verdict in verdicts(results)}


@pytest.mark.parametrize(
    ("memory", "peer", "expected"),
    [
        (1.9, None, True),
        (2.1, None, False),
        (1.9, 0.5, True),  # the goal itself is enough
        (2.1, 1.9, False),  # the ceiling can do it, so it is no excuse
        (5.1, 4.0, True),
        (5.3, 4.0, False),
    ],
)
def test_the_ceiling_counts_only_where_it_misses_the_goal_too(
    memory: float, peer: float | None, expected: bool
) -> None:
    single = {OURS: ours(memory)} | ({} if peer is None else {CEILING: ceiling(peer)})
    assert met(Results({}, {}, single=single))["p99 of MEMORY"] is expected


@pytest.mark.parametrize(("seconds", "expected"), [(0.08, True), (0.05, False)])
def test_the_top_rate_is_a_share_of_the_ceilings(seconds: float, expected: bool) -> None:
    results = Results({}, {}, single={OURS: ours(), CEILING: ceiling(1.0, seconds)})
    assert met(results)["top rate"] is expected


def test_nothing_is_said_of_what_was_not_measured() -> None:
    assert verdicts(Results({}, {})) == []
    assert ratios(Results({}, {})) == []
    assert "top rate" not in met(Results({}, {}, single={OURS: ours()}))


def test_goals_of_the_disk_and_of_notices() -> None:
    answers = met(Results({}, {}, single={OURS: ours(disk=30.0)}))
    assert answers["p99 of LOCAL_DISK"] is False
    assert answers["p99 from LOCAL_DISK to its notice"] is True
    assert answers["p99 from OBJECT_STORAGE to its notice"] is True


def test_goals_of_the_other_scenarios() -> None:
    crowd = Crowd(100, 1, 600_000, {"MEMORY": Tier(600_000, 1.0)}, (6000.0,) * 100)
    slow = Run(10, None, {"OBJECT_STORAGE": Tier(10, 301.0)})
    answers = met(Results({}, {}, crowd=crowd, lag={"stock client": slow}))
    assert answers == {"100 clients in all": True, "10 writes at OBJECT_STORAGE, stock client": False}


def test_kafka_is_compared_with_what_is_on_our_disk() -> None:
    kafka = Contender(offered(DELIVERED=10.0), Run(1000, None, {"DELIVERED": Tier(1000, 0.4)}))
    alone = Contender(top=Crowd(1, 1, 1000, {"MEMORY": Tier(1000, 0.01), "LOCAL_DISK": Tier(1000, 0.02)}))
    single = {OURS: ours(disk=5.0), KAFKA: kafka, COALESCING: alone}
    compared = {ratio.what: ratio.ratio for ratio in ratios(Results({}, {}, single=single))}
    assert compared == pytest.approx(
        {
            "p99 on disk at the offered rate": 0.5,
            "top rate to disk, stock": 2.0,
            "top rate to disk, coalescing": 20.0,
        }
    )
