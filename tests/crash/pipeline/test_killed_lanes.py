"""The driver is killed before, in and after each step, or frozen there while another driver finishes.

All lanes share each process, so that a round costs one start of Spark instead of one for each lane.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import uuid4

import pytest

from devtools.kafka_broker import KafkaBroker
from headrace.certify.chain import Chain, Surroundings
from headrace.certify.defects.names import (
    COMMIT_AGAIN,
    DECIDED_IS_COMMITTED,
    ENDPOINT_FENCE_NOT_CHECKED,
    FENCE_NOT_CHECKED,
    HANDLE_LOST,
    LEFT_BEHIND,
    OPENING_FORGETS,
)
from headrace.certify.feeds import Feed
from headrace.certify.lanes import Lane
from headrace.certify.results import Outcome
from headrace.certify.rounds import Round
from headrace.certify.scenarios import Arm, How, Scenario
from headrace.certify.seeding import MODULES
from headrace.certify.targets.delta import DeltaTarget
from headrace.certify.targets.hudi import HudiTarget
from headrace.certify.targets.iceberg import IcebergTarget
from headrace.certify.targets.kafka import KafkaTarget
from headrace.certify.targets.parquet import ParquetTarget
from headrace.certify.targets.postgres import PostgresTarget
from headrace.certify.targets.sinks import SinkTarget
from headrace.certify.targets.sqlite import SqliteTarget
from headrace.certify.targets.target import APPEND, VIEW, Target
from headrace.faults import Action
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.kafka.config import ClientOptions
from tests.certify.lanes import has_hudi
from tests.crash.pipeline.lanes import (
    COLLECTIONS,
    CONFIGURED,
    BadCollectionFeed,
    BadKafkaFeed,
    Beside,
    LatestPostgres,
    LatestSqlite,
    LooseBeside,
)
from tests.pipeline.sink_places import PLACES

pytestmark = [pytest.mark.full, pytest.mark.processes]

# Source, endpoint, shards, and whether the rows of a key are reduced or the last one wins.
CONNECTORS = [
    ("collection", "postgres", 4, "latest"),
    ("collection", "postgres", 2, "reduced"),
    ("kafka", "postgres", 1, "reduced"),
    ("collection", "sqlite", 1, "reduced"),
    ("kafka", "sqlite", 4, "latest"),
]
# Source, connector if any, and two sinks.
PAIRS: list[tuple[str, str, tuple[str, str], tuple[str, str]]] = [
    ("collection", "sqlite", ("iceberg", VIEW), ("parquet", APPEND)),
    ("kafka", "", ("kafka", APPEND), ("delta", VIEW)),
    ("collection", "", ("hudi", VIEW), ("iceberg", APPEND)),
    ("kafka", "", ("hudi", APPEND), ("delta", APPEND)),
]

# Lanes that run a single round, with defective code.
DEFECTIVE = ("collection", "sqlite", 1, "reduced")
DEFECTIVE_PAIR = ("collection", "", ("delta", VIEW), ("parquet", APPEND))

Arms = Callable[[Lane], list[Arm]]


@dataclass(frozen=True)
class Seed:
    """Defects of a lane, and a pattern that must match what its round reports."""

    defects: tuple[str, ...]
    notice: str


LOST = Seed((HANDLE_LOST,), r"has \d+ of \d+ documents|not there")
NO_FENCES = Seed(
    (FENCE_NOT_CHECKED, ENDPOINT_FENCE_NOT_CHECKED), "was not refused|after it had seen|not there"
)
LEFT = Seed((LEFT_BEHIND,), "left behind")
TWICE = Seed((COMMIT_AGAIN,), "more than once")


def did(step: str) -> Arms:
    """Arms the point after a step of the coordinator."""
    return lambda lane: [Arm(lane.did(step))]


def prepared_first(lane: Lane) -> list[Arm]:
    return [Arm(lane.did(f"prepared {lane.sinks[0]}"))]


def committed_first(lane: Lane) -> list[Arm]:
    return [Arm(lane.did(f"committed {lane.sinks[0]}"))]


def in_abort(lane: Lane) -> list[Arm]:
    """Lets a step fail, so that the prepared epoch is aborted, and kills the driver during the abort."""
    second = lane.sinks[1]
    return [Arm(lane.did(f"prepared {second}"), Action.UNAVAILABLE), Arm(f"aborting {second}")]


def first(step: str) -> Arms:
    return lambda lane: [Arm(f"{step} {lane.sinks[0]}")]


def second(step: str) -> Arms:
    return lambda lane: [Arm(f"{step} {lane.sinks[1]}")]


def killed_twice(arms: Arms, again: Arms) -> Scenario:
    """Kills the driver twice in a row, without a successful run between.

    There are two writes, so that an epoch is left to begin after the first kill.
    """
    return Scenario("killed twice", "", arms, again=again, writes=2)


def woken(arms: Arms) -> Scenario:
    """Freezes the driver in its second epoch, with a third one still to come."""

    def later(lane: Lane) -> list[Arm]:
        return [Arm(arm.point, arm.action, occurrence=2) for arm in arms(lane)]

    return Scenario("woken", "", later, How.WOKEN, writes=3, must_be_refused=True)


# The scenario of connectors and of sinks in each round, and a defect that the round must detect.
OF_CONNECTORS = [
    (killed_twice(did("opened"), did("prepared dead-letters")), LEFT),
    (killed_twice(did("prepared connector"), did("decided")), LOST),
    (killed_twice(did("committed dead-letters"), did("committed connector")), TWICE),
    (killed_twice(did("decided"), did("opened")), replace(LOST, defects=(OPENING_FORGETS,))),
    (woken(did("prepared dead-letters")), NO_FENCES),
    (woken(did("prepared connector")), NO_FENCES),
]
OF_SINKS = [
    (killed_twice(first("preparing"), second("staged")), LEFT),
    (
        killed_twice(first("committing"), second("committing")),
        Seed((DECIDED_IS_COMMITTED,), f"{LOST.notice}|stands at epoch"),
    ),
    (killed_twice(second("published"), prepared_first), TWICE),
    (killed_twice(did("decided"), in_abort), LEFT),
    # It has decided an epoch and committed it in one of its sinks; other drivers resumed from there.
    (woken(committed_first), NO_FENCES),
]


class Lanes:
    """All lanes, with the servers that they need."""

    def __init__(self, folder: Path, postgres_url: str, broker: KafkaBroker) -> None:
        self._postgres, self._broker = {"url": postgres_url}, broker
        self._folder = folder / "endpoints"
        more = {"collections": CONFIGURED}
        self.surroundings = Surroundings(folder, more=more, modules=MODULES)
        self._dead = self.surroundings.data / "state/dead-letters"
        self.surroundings.data.mkdir()
        self.catalog = embedded_catalog(self.surroundings.data)
        mark = uuid4().hex[:6]
        client = ClientOptions(broker.bootstrap)
        self.feeds: dict[str, Feed] = {
            "collection": BadCollectionFeed(self.catalog, COLLECTIONS),
            "kafka": BadKafkaFeed(client, f"killed-{mark}", partitions=2),
        }
        self.connectors = [self._lane(*one, mark) for one in CONNECTORS]
        self.sinks = [
            self._pair_lane(*one, mark) for one in PAIRS if has_hudi() or "hudi" not in (one[2][0], one[3][0])
        ]
        self.defective_connectors = [
            self._lane(*DEFECTIVE, f"{mark}-{number}") for number, _ in enumerate(OF_CONNECTORS, 1)
        ]
        self.defective_sinks = [
            self._pair_lane(*DEFECTIVE_PAIR, f"{mark}-{number}") for number, _ in enumerate(OF_SINKS, 1)
        ]

    @property
    def right(self) -> list[Lane]:
        return [*self.connectors, *self.sinks]

    @property
    def seeded(self) -> list[tuple[Lane, Seed]]:
        """The defective lanes, each with its defects."""
        connectors = zip(self.defective_connectors, OF_CONNECTORS, strict=True)
        sinks = zip(self.defective_sinks, OF_SINKS, strict=True)
        return [(lane, seed) for lane, (_, seed) in [*connectors, *sinks]]

    @property
    def all(self) -> list[Lane]:
        return [*self.right, *(lane for lane, _ in self.seeded)]

    @property
    def rounds(self) -> list[Round]:
        """Puts each defective lane into the one round that must detect it."""
        rounds: list[list[tuple[Lane, Scenario]]] = []
        for number, (scenario, _) in enumerate(OF_CONNECTORS):
            is_last = number == len(OF_CONNECTORS) - 1
            some = [lane for lane in self.connectors if not is_last or "postgres" in lane.name]
            rounds.append([(lane, scenario) for lane in [*some, self.defective_connectors[number]]])
        for number, (scenario, _) in enumerate(OF_SINKS):
            rounds[number] += [(lane, scenario) for lane in [*self.sinks, self.defective_sinks[number]]]
        return list(rounds)

    @property
    def defects(self) -> dict[str, list[str]]:
        """Maps each defect to the lanes, and their sinks, that have it."""
        found: dict[str, list[str]] = {}
        for lane, seed in self.seeded:
            for defect in seed.defects:
                names = [lane.name, *(name.rpartition("-")[0] for name in lane.sinks)]
                found.setdefault(defect, []).extend(names)
        return found

    def __enter__(self) -> Lanes:
        self._stack = ExitStack()
        for lane in self.all:
            self._stack.enter_context(lane.target.running())
            self._stack.callback(lane.remove)
        for feed in self.feeds.values():
            self._stack.callback(feed.remove, [lane.name for lane in self.all if lane.feed is feed])
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _lane(self, source: str, endpoint: str, shards: int, wins: str, mark: str) -> Lane:
        return Lane(self.feeds[source], self._connector(endpoint, shards, wins), f"-{mark}")

    def _pair_lane(
        self, source: str, connector: str, one: tuple[str, str], other: tuple[str, str], mark: str
    ) -> Lane:
        return Lane(self.feeds[source], self._pair(source, connector, one, other), f"-{mark}")

    def _connector(self, endpoint: str, shards: int, wins: str) -> Target:
        of: dict[tuple[str, str], Callable[[], Target]] = {
            ("postgres", "reduced"): lambda: PostgresTarget(self._postgres),
            ("postgres", "latest"): lambda: LatestPostgres(self._postgres),
            ("sqlite", "reduced"): lambda: SqliteTarget(self._folder / "sqlite"),
            ("sqlite", "latest"): lambda: LatestSqlite(self._folder / "sqlite"),
        }
        # Readers see an epoch as a whole only with one shard and one partition of the source.
        return LooseBeside(f"{endpoint}-{shards}-{wins}", self._dead, of[endpoint, wins](), shards=shards)

    def _pair(self, source: str, connector: str, *sinks: tuple[str, str]) -> Target:
        kind = LooseBeside if source == "kafka" else Beside
        beside = SqliteTarget(self._folder / "sqlite") if connector else None
        name = "-".join([connector or "no", *(format_name for format_name, _ in sinks)])
        return kind(name, self._dead, beside, [self._sink(*sink) for sink in sinks])

    def _sink(self, format_name: str, mode: str) -> SinkTarget:
        below = (self._folder / format_name).absolute().as_uri()
        of: dict[str, Callable[[], SinkTarget]] = {
            "kafka": lambda: KafkaTarget(self._broker.bootstrap, {"shards": "2"}),
            "iceberg": lambda: IcebergTarget(self.catalog),
            "parquet": lambda: ParquetTarget(below, {}),
            "delta": lambda: DeltaTarget(below, {}),
            "hudi": lambda: HudiTarget(below, {}),
        }
        target = of[format_name]()
        target.modes = (mode,)
        return target


@pytest.fixture
def lanes(tmp_path: Path, postgres_url: str, kafka_broker: KafkaBroker) -> Iterator[Lanes]:
    with Lanes(tmp_path, postgres_url, kafka_broker) as lanes:
        yield lanes


@pytest.mark.timeout(3600)
def test_each_row_is_there_once_whenever_it_is_killed_or_woken(lanes: Lanes) -> None:
    """Checks every view and the dead letters, and that each defect is detected."""
    chain = Chain(lanes.surroundings, lanes.all, defects=lanes.defects)
    chain.run(lanes.rounds)
    wrong = {
        (lane.name, one.scenario, one.faults): one.told
        for lane in lanes.right
        for one in chain.evidence[lane.name]
        if one.outcome is not Outcome.HELD
    }
    assert wrong == {}
    for lane in lanes.all:
        expected = [scenario.name for some in lanes.rounds for of, scenario in some if of is lane]
        assert [one.scenario for one in chain.evidence[lane.name]] == expected, lane.name
    unnoticed = {
        (lane.name, seed): one.told
        for lane, seed in lanes.seeded
        for one in chain.evidence[lane.name]
        if one.outcome not in (Outcome.BROKEN, Outcome.TWICE) or not re.search(seed.notice, one.told)
    }
    assert unnoticed == {}


def test_each_kind_of_sink_is_in_a_pair() -> None:
    assert {kind for _, _, *pair in PAIRS for kind, _ in pair} == set(PLACES)
