"""Scenarios with real processes, both ways: what is right holds, and what is defective is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.certify.chain import Chain, Surroundings
from headrace.certify.feeds import CollectionFeed
from headrace.certify.lanes import Lane
from headrace.certify.progress import Steps
from headrace.certify.results import Outcome
from headrace.certify.rounds import rounds_of
from headrace.certify.scenarios import HOST_LOST, SCENARIOS, How
from headrace.certify.seeding import SEEDS, seeded
from headrace.certify.targets.embedded import embedded_targets
from headrace.certify.targets.sqlite_served import ServedSqliteTarget
from headrace.ingest.iceberg.settings import embedded_catalog

# Others are run by `headrace certify --quick`, which is a test too.
TRIED = ("killed while shards are taken over", "connection cut", "connection stalled", "task attempt lost")


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(1800)
def test_what_is_right_holds(tmp_path: Path) -> None:
    surroundings = Surroundings(tmp_path)
    surroundings.data.mkdir()
    catalog = embedded_catalog(surroundings.data)
    target = ServedSqliteTarget(tmp_path / "endpoint")
    with target.running():
        lane = Lane(CollectionFeed(catalog), target)
        scenarios = [one for one in SCENARIOS if one.name in TRIED]
        chain = Chain(surroundings, [lane], seed=7)
        chain.run(rounds_of([(lane, one) for one in scenarios]))
    found = {one.scenario: (one.outcome, one.told) for one in chain.evidence[lane.name]}
    assert found == dict.fromkeys(TRIED, (Outcome.HELD, ""))
    assert chain.guarantees == {lane.name: "exactly-once"}


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(3600)
def test_what_is_defective_is_noticed(tmp_path: Path) -> None:
    """By each scenario but those of a quick certification, which is a test of its own."""
    scenarios = [one for one in [*SCENARIOS, HOST_LOST] if not one.is_quick]
    found = seeded(tmp_path, scenarios, Steps(lambda _text, _share: None))
    assert {one.scenario for one in found} == {one.name for one in scenarios}
    assert not [one for one in found if not one.caught]


def test_every_scenario_has_a_defect() -> None:
    assert {one.name for one in [*SCENARIOS, HOST_LOST]} == {seed.scenario for seed in SEEDS}


def test_rounds_have_each_lane_once_and_one_end(tmp_path: Path) -> None:
    catalog = embedded_catalog(tmp_path)
    feed = CollectionFeed(catalog)
    lanes = [Lane(feed, target) for target in embedded_targets(tmp_path, catalog)[:1]]
    trials = [(lane, one) for one in SCENARIOS for lane in lanes if one.arms(lane)]
    rounds = rounds_of(trials)
    assert sorted(one.name for some in rounds for _, one in some) == sorted(one.name for _, one in trials)
    for some in rounds:
        assert len({lane for lane, _ in some}) == len(some)
        assert len({scenario.how for _, scenario in some}) == 1
    assert [some[0][1].name for some in rounds[-6:]] == [
        "clock stepped back",
        "file changed between crash and restart",
        "restored twice and failed back",
        "table shared",
        "endpoint restored",
        "source recreated",
    ]
    assert rounds[0][0][1].how is How.KILLED
