"""A driver is frozen in the middle of an epoch, another one takes over, and then the first wakes up."""

from __future__ import annotations

import pytest

from tests.crash.pipeline.killing import Driver, finish
from tests.pipeline.scenarios import MakeScenario


@pytest.mark.timeout(600)
@pytest.mark.parametrize("step", ["prepared dead-letters", "prepared connector"])
def test_one_who_wakes_up_late_changes_nothing(make_scenario: MakeScenario, step: str) -> None:
    scenario, view = make_scenario("collection", "postgres", 2)
    for _ in range(3):
        scenario.write(60)
    with Driver(scenario, step, "2", "freeze") as zombie:
        zombie.wait_until_frozen()
        successor = finish(scenario)
        assert successor.epochs == [1, 2]
        scenario.assert_exact(view())
        zombie.thaw()
        ended = zombie.end()
        assert ended.returncode == 1
        assert "was taken over by" in ended.output
        assert ended.epochs == [0]
        scenario.assert_exact(view())
