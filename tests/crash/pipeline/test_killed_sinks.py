"""The driver is killed before, in and after each step of its sinks, and each has every row once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.crash.pipeline.killing import Driver, finish
from tests.pipeline.scenario import Scenario
from tests.pipeline.scenarios import Documents, MakeScenario
from tests.pipeline.sink_places import PLACES, SinkPlace, assert_sink_exact

# Points of the code at which it dies: one sink is not prepared yet, or both are, or one has committed.
FAULTS = [
    "preparing first.orders",
    "staged second.orders",
    "committing first.orders",
    "committing second.orders",
    "published second.orders",
]
STEPS = ["prepared first.orders", "decided"]
# From a source, beside a connector or none.
PAIRS = [
    ("collection", "sqlite", ("iceberg", "view"), ("parquet", "append")),
    ("kafka", "", ("kafka", "append"), ("delta", "view")),
    ("collection", "", ("hudi", "view"), ("iceberg", "append")),
    ("kafka", "", ("hudi", "append"), ("delta", "append")),
]
IDS = [
    f"{source} to {first[0]} and {second[0]}{f' beside {connector}' if connector else ''}"
    for source, connector, first, second in PAIRS
]


@dataclass(frozen=True)
class Beside:
    """Sinks in one materialization, with or without a connector."""

    scenario: Scenario
    places: list[SinkPlace]
    view: Callable[[], Documents] | None

    def assert_exact(self) -> None:
        for place in self.places:
            assert_sink_exact(self.scenario, place)
        if self.view is not None:
            self.scenario.assert_exact(self.view())


@pytest.fixture
def beside(make_scenario: MakeScenario, request: pytest.FixtureRequest) -> Beside:
    source, connector, *targets = request.param
    scenario, view = make_scenario(source, "sqlite")
    scenario.connector = connector
    places = [
        PLACES[kind](scenario, name, mode, request.getfixturevalue)
        for name, (kind, mode) in zip(("first", "second"), targets, strict=True)
    ]
    return Beside(scenario, places, view if connector else None)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("beside", PAIRS, ids=IDS, indirect=True)
def test_killed_at_each_step(beside: Beside) -> None:
    scenario = beside.scenario
    scenario.write(60)
    for fault in FAULTS:
        ran = Driver(scenario, fault=fault).end()
        assert ran.was_killed, f"{fault}: {ran.output}"
        scenario.write(60)
    for step in STEPS:
        ran = Driver(scenario, step).end()
        assert ran.was_killed, f"{step}: {ran.output}"
        scenario.write(60)
    # A step fails, so that what is prepared is aborted, and it is killed while it does that.
    ran = Driver(scenario, "prepared second.orders", "1", "fail", fault="aborting second.orders").end()
    assert ran.was_killed, ran.output
    finish(scenario)
    beside.assert_exact()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("beside", PAIRS, ids=IDS, indirect=True)
def test_one_who_wakes_up_late_changes_nothing(beside: Beside) -> None:
    """It has decided an epoch, and committed it in one of its sinks; others went on from there."""
    scenario = beside.scenario
    for _ in range(3):
        scenario.write(60)
    with Driver(scenario, "committed first.orders", "2", "freeze") as zombie:
        zombie.wait_until_frozen()
        finish(scenario)
        beside.assert_exact()
        zombie.thaw()
        ended = zombie.end()
        assert ended.returncode == 1, ended.output
        assert "was taken over by" in ended.output
        beside.assert_exact()


def test_each_kind_of_sink_is_in_a_pair() -> None:
    assert {kind for _, _, *targets in PAIRS for kind, _ in targets} == set(PLACES)
