"""Pipelines with sinks meet their end before, in and after each step, and each sink has every row once.

Scenarios are those of `headrace certify`. Files and tables are in object storage but for Hudi's.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from devtools.kafka_broker import KafkaBroker
from devtools.s3_server import S3Server
from headrace.certify.chain import Chain, Surroundings
from headrace.certify.feeds import CollectionFeed, KafkaFeed
from headrace.certify.lanes import Lane
from headrace.certify.results import Outcome
from headrace.certify.rounds import rounds_of
from headrace.certify.scenarios import SCENARIOS
from headrace.certify.targets.delta import DeltaTarget
from headrace.certify.targets.hudi import HudiTarget
from headrace.certify.targets.iceberg import IcebergTarget
from headrace.certify.targets.kafka import KafkaTarget
from headrace.certify.targets.parquet import ParquetTarget
from headrace.ingest.iceberg.settings import CatalogSettings, embedded_catalog
from headrace.sinks.kafka_options import ClientOptions
from tests.crash.pipeline.killing import Driver, finish
from tests.pipeline.scenario import Scenario
from tests.pipeline.scenarios import MakeScenario
from tests.pipeline.sink_places import PLACES, SinkPlace, assert_sink_exact
from tests.sinks.s3_place import s3_options

TRIED = (
    "killed before prepare",
    "killed in prepare",
    "killed between two prepares",
    "killed after the decision",
    "killed in commit",
    "killed after commit",
    "killed in abort",
    "woken after the decision",
    "task attempt lost",
    "sink unavailable",
)


@pytest.fixture
def lanes(tmp_path: Path, s3_server: S3Server, s3_bucket: str, kafka_broker: KafkaBroker) -> list[Lane]:
    bucket, options = f"s3://{s3_bucket}", s3_options(s3_server)
    (tmp_path / "data").mkdir()
    properties = {**embedded_catalog(tmp_path / "data").properties, **s3_server.iceberg_properties()}
    catalog = CatalogSettings(properties={**properties, "warehouse": f"{bucket}/warehouse"})
    collection = CollectionFeed(catalog)
    topic = KafkaFeed(ClientOptions(kafka_broker.bootstrap), f"source-of-{s3_bucket}")
    return [
        Lane(collection, ParquetTarget(f"{bucket}/parquet", options)),
        Lane(collection, IcebergTarget(catalog)),
        Lane(collection, HudiTarget((tmp_path / "hudi").as_uri(), {})),
        Lane(topic, DeltaTarget(f"{bucket}/delta", options)),
        Lane(topic, KafkaTarget(kafka_broker.bootstrap, {})),
    ]


@pytest.mark.timeout(1800)
def test_each_kind_of_sink_at_each_step(lanes: list[Lane], tmp_path: Path) -> None:
    scenarios = [one for one in SCENARIOS if one.name in TRIED]
    assert len(scenarios) == len(TRIED)
    trials = [(lane, one) for one in scenarios for lane in lanes if one.arms(lane)]
    catalog = next(lane.target for lane in lanes if isinstance(lane.target, IcebergTarget)).catalog
    chain = Chain(Surroundings(tmp_path, more={"catalog": catalog.to_json()}), lanes, seed=3)
    with ExitStack() as stack:
        for lane in lanes:
            stack.callback(lane.remove)
        chain.run(rounds_of(trials))
    found = {
        (lane, one.scenario): (one.outcome, one.told)
        for lane, shown in chain.evidence.items()
        for one in shown
        if one.outcome is not Outcome.HELD
    }
    assert found == {}
    assert sum(map(len, chain.evidence.values())) == len(trials)


# Points of the code at which it dies: one sink is not prepared yet, or both are, or one has committed.
FAULTS = [
    "preparing first.orders",
    "staged second.orders",
    "committing first.orders",
    "committing second.orders",
    "published second.orders",
]
STEPS = ["prepared first.orders", "decided"]


@pytest.fixture
def of_two_formats(
    make_scenario: MakeScenario, request: pytest.FixtureRequest
) -> tuple[Scenario, list[SinkPlace]]:
    scenario, _ = make_scenario("kafka", "sqlite")
    scenario.connector = ""
    places = [
        PLACES[kind](scenario, name, mode, request.getfixturevalue)
        for name, kind, mode in (("first", "kafka", "append"), ("second", "delta", "view"))
    ]
    return scenario, places


@pytest.mark.timeout(900)
def test_two_formats_in_one_epoch(of_two_formats: tuple[Scenario, list[SinkPlace]]) -> None:
    scenario, places = of_two_formats
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
    for place in places:
        assert_sink_exact(scenario, place)


@pytest.mark.timeout(600)
def test_one_who_wakes_up_late_changes_nothing(of_two_formats: tuple[Scenario, list[SinkPlace]]) -> None:
    """It has decided an epoch, and committed it in one of its sinks; others went on from there."""
    scenario, places = of_two_formats
    for _ in range(3):
        scenario.write(60)
    zombie = Driver(scenario, "committed first.orders", "2", "freeze")
    zombie.wait_until_frozen()
    finish(scenario)
    for place in places:
        assert_sink_exact(scenario, place)
    zombie.thaw()
    ended = zombie.end()
    assert ended.returncode == 1, ended.output
    assert "was taken over by" in ended.output
    for place in places:
        assert_sink_exact(scenario, place)
