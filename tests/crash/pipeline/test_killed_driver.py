"""The driver is killed after each step of the coordinator, and the view and the dead letters are right."""

from __future__ import annotations

import pytest

from tests.crash.pipeline.killing import finish, run_driver
from tests.pipeline.scenarios import MakeScenario

STEPS = [
    "opened",
    "prepared dead-letters",
    "prepared connector",
    "decided",
    "committed dead-letters",
    "committed connector",
]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("source", "endpoint", "shards", "wins"),
    [
        ("collection", "postgres", 4, "latest"),
        ("kafka", "postgres", 1, "reduced"),
        ("collection", "sqlite", 1, "reduced"),
        ("kafka", "sqlite", 4, "latest"),
    ],
)
def test_killed_after_each_step(
    make_scenario: MakeScenario, source: str, endpoint: str, shards: int, wins: str
) -> None:
    """The latest of a key's rows is found by the tasks of the shards, where others are combined by Spark."""
    scenario, view = make_scenario(source, endpoint, shards)
    scenario.is_latest = wins == "latest"
    for _ in range(3):
        scenario.write(60)
    for step in STEPS:
        ran = run_driver(scenario, step)
        assert ran.was_killed, ran.output
        scenario.write(60)
    ran = finish(scenario)
    assert ran.epochs[-1] >= len(STEPS)
    scenario.assert_exact(view())
