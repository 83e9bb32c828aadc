"""Kills and freezes every connector and sink, with real servers and processes, at the two decisive points."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from devtools.kafka_broker import KafkaBroker
from devtools.s3_server import S3Server
from headrace.certify.chain import Chain, Surroundings
from headrace.certify.endpoints import Brokers, Endpoints
from headrace.certify.feeds import CollectionFeed
from headrace.certify.lanes import Lane
from headrace.certify.results import Evidence, Outcome
from headrace.certify.rounds import Round
from headrace.certify.scenarios import SCENARIOS
from headrace.certify.seeding import MODULES, SEEDS
from headrace.certify.targets.files import FilesTarget
from headrace.certify.targets.sinks import SinkTarget
from headrace.certify.targets.target import VIEW, Target
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.pipeline.settings import Guarantee, Profile
from tests.certify.lanes import has_hudi

pytestmark = pytest.mark.processes

KILLED, WOKEN = "killed after the decision", "woken before the decision"
DECISIVE = {one.name: one for one in SCENARIOS if one.name in (KILLED, WOKEN)}
SEEDED = [seed for seed in SEEDS if seed.scenario in DECISIVE]
"""A defect for each of these scenarios, which the round must detect."""
AT_LEAST_ONCE = {"webhook", "redis"}
"""Targets that may contain rows twice after a replay, and whose guarantee says so."""
TARGETS = {
    *("sqlite", "webhook", "files-s3", "postgres", "redis"),
    *("parquet", "iceberg", "delta", "kafka"),
    *(("hudi",) if has_hudi() else ()),
}


@pytest.fixture
def surroundings(tmp_path: Path) -> Surroundings:
    surroundings = Surroundings(tmp_path, modules=MODULES)
    surroundings.data.mkdir()
    return surroundings


@pytest.fixture
def targets(
    surroundings: Surroundings,
    postgres_url: str,
    redis_url: str,
    kafka_broker: KafkaBroker,
    s3_server: S3Server,
    s3_bucket: str,
) -> list[Target]:
    endpoints = Endpoints(
        postgres={"url": postgres_url},
        redis={"url": redis_url},
        kafka=Brokers(kafka_broker.bootstrap),
    )
    found = [
        *endpoints.targets(
            Profile.SINGLE_NODE_DURABLE,
            surroundings.folder / "endpoints",
            embedded_catalog(surroundings.data),
        ),
        FilesTarget(f"s3://{s3_bucket}", s3_server.obstore_options()),
    ]
    chosen = [target for target in found if target.name in TARGETS]
    assert {target.name for target in chosen} == TARGETS
    for target in chosen:
        if isinstance(target, SinkTarget) and VIEW in target.modes:
            target.modes = (VIEW,)  # the harder mode; the full tier runs both
    return chosen


@pytest.mark.timeout(3600)
def test_killed_after_the_decision_and_woken_before_it(
    surroundings: Surroundings, targets: list[Target]
) -> None:
    """Runs all lanes in one process, which is killed in one round and frozen while others finish in the next.

    Two additional lanes are defective, one for each round, and the round must detect the defect: a round that
    detects nothing would prove nothing.
    """
    feed = CollectionFeed(embedded_catalog(surroundings.data))
    mark = f"-{uuid4().hex[:8]}"  # the servers are shared with other tests
    by_name = {target.name: target for target in targets}
    with ExitStack() as stack:
        for target in targets:
            stack.enter_context(target.running())
        right = [Lane(feed, target, mark) for target in targets]
        defective = {
            seed.scenario: Lane(feed, by_name[seed.target], f"{mark}-{number}")
            for number, seed in enumerate(SEEDED)
        }
        lanes = [*right, *defective.values()]
        for lane in lanes:
            stack.callback(lane.remove)
        defects = {defect: [defective[seed.scenario].name] for seed in SEEDED for defect in seed.defects}
        chain = Chain(surroundings, lanes, defects=defects)
        chain.run([_round(KILLED, [*right, defective[KILLED]]), _round(WOKEN, [*right, defective[WOKEN]])])
    claimed = {lane.target.name: chain.guarantees[lane.name] for lane in right}
    assert {name for name, one in claimed.items() if one == Guarantee.AT_LEAST_ONCE} == AT_LEAST_ONCE
    for lane in right:
        _assert_right(lane, chain.evidence[lane.name])
    for seed in SEEDED:
        (found,) = chain.evidence[defective[seed.scenario].name]
        assert found.outcome is Outcome.BROKEN, seed
        assert re.search(seed.notice, found.told), (seed, found.told)


def _round(scenario: str, lanes: list[Lane]) -> Round:
    return [(lane, DECISIVE[scenario]) for lane in lanes]


def _assert_right(lane: Lane, evidence: list[Evidence]) -> None:
    may_be = {Outcome.HELD, Outcome.TWICE} if lane.target.name in AT_LEAST_ONCE else {Outcome.HELD}
    assert [one.scenario for one in evidence] == [KILLED, WOKEN], lane.name
    assert {one.outcome for one in evidence} <= may_be, (lane.name, [one.told for one in evidence])
