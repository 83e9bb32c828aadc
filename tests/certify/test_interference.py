"""Interferences: which start has to be refused, and what is put right afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.certify.chain import Surroundings
from headrace.certify.feeds import CollectionFeed
from headrace.certify.interference import Content, Interference, lane_of
from headrace.certify.lanes import Lane, configuration
from headrace.certify.looking import Looks
from headrace.certify.scenarios import SCENARIOS, Scenario
from headrace.certify.targets.parquet import ParquetTarget
from headrace.certify.targets.sqlite import SqliteTarget
from headrace.certify.targets.target import Target
from headrace.ingest.iceberg.settings import embedded_catalog
from headrace.pipeline.settings import Profile

BY_NAME = {one.name: one for one in SCENARIOS}
REFUSED = {
    "restored twice and failed back": "stands at epoch 3 of another history than the recovery log: restore",
    "table shared": "main.events is written by materialization 'lane'",
    "file changed between crash and restart": "epoch 3 by other rules, another schema or other fields than "
    "the file has now",
    "sink rolled back": "has 0 of 1 files of epoch 3, and had the rows of epoch 3",
}


@dataclass
class Trial:
    lane: Lane
    scenario: Scenario
    looks: Looks
    told: list[str] = field(default_factory=list)


@dataclass
class World:
    """A lane, and starts of which each says in `answers` what becomes of it."""

    lane: Lane
    content: Content
    answers: list[str]
    started: list[tuple[Sequence[str], Content]] = field(default_factory=list)

    def start(self, names: Sequence[str], content: Content) -> Mapping[str, str]:
        self.started.append((names, content))
        return dict.fromkeys(names, self.answers.pop(0))

    def run(self, scenario: str) -> Trial:
        trial = Trial(self.lane, BY_NAME[scenario], Looks(self.lane))
        Interference(self.content, self.start).run([trial])
        return trial


@pytest.fixture
def make_world(tmp_path: Path) -> Callable[..., World]:
    def make(target: Target, *answers: str) -> World:
        lane = Lane(CollectionFeed(embedded_catalog(tmp_path)), target)
        content = configuration([lane], Surroundings(tmp_path).data, Profile.SINGLE_NODE_DURABLE)
        return World(lane, content, list(answers))

    return make


def fields_of(content: Content) -> dict[str, Any]:
    fields: dict[str, Any] = content["collections"]["events"]["schema"]["properties"]
    return fields


@pytest.mark.parametrize("why", ["", "the endpoint does not answer"])
@pytest.mark.parametrize("scenario", ["table shared", "file changed between crash and restart"])
def test_a_start_that_is_not_refused_is_wrong(
    make_world: Callable[..., World], tmp_path: Path, scenario: str, why: str
) -> None:
    trial = make_world(SqliteTarget(tmp_path), why).run(scenario)
    assert trial.looks.problem == f"the start was not refused: {why or 'it went on'}"
    assert make_world(SqliteTarget(tmp_path), REFUSED[scenario]).run(scenario).looks.problem == ""


def test_another_materialization_goes_to_the_same_tables(
    make_world: Callable[..., World], tmp_path: Path
) -> None:
    world = make_world(SqliteTarget(tmp_path), REFUSED["table shared"])
    world.run("table shared")
    (((name,), content),) = world.started
    assert lane_of(name) == world.lane.name != name
    assert content["materializations"] == {name: world.lane.materialization}


def test_another_schema_is_tried(make_world: Callable[..., World], tmp_path: Path) -> None:
    scenario = "file changed between crash and restart"
    world = make_world(SqliteTarget(tmp_path), REFUSED[scenario])
    world.run(scenario)
    ((_, content),) = world.started
    assert fields_of(content)["total"] == {"type": "number", "reduce": {"strategy": "sum"}}
    assert fields_of(world.content)["total"]["type"] == "integer"


def test_an_endpoint_ends_with_the_copy_that_fits(make_world: Callable[..., World], tmp_path: Path) -> None:
    scenario = "restored twice and failed back"
    world = make_world(SqliteTarget(tmp_path / "databases"), "", REFUSED[scenario])
    path = Path(world.lane.materialization["config"]["path"])
    done: list[str] = []
    target = world.lane.target
    for step in ("save", "restore"):
        setattr(target, step, lambda _, copy="saved", step=step: done.append(f"{step} {copy}"))
    assert world.run(scenario).looks.problem == ""
    assert done == ["save later", "restore saved", "save anew", "restore later", "restore anew"]
    (_, larger), (_, same) = world.started
    assert larger["materializations"][world.lane.name]["limits"] == {"files": 3}
    assert same == world.content
    assert not path.exists()


def test_what_is_rolled_back_is_put_back(make_world: Callable[..., World], tmp_path: Path) -> None:
    target = ParquetTarget((tmp_path / "parquet").as_uri(), {})
    world = make_world(target, REFUSED["sink rolled back"])
    folder = tmp_path / "parquet" / f"{world.lane.name}-append"
    for epoch in (2, 3):
        (folder / f"epoch-{epoch:020}").mkdir(parents=True)
    seen: list[list[str]] = []
    start = world.start

    def look_and_start(names: Sequence[str], content: Content) -> Mapping[str, str]:
        seen.append(sorted(path.name for path in folder.iterdir()))
        return start(names, content)

    world.start = look_and_start  # type: ignore[method-assign]
    assert world.run("sink rolled back").looks.problem == ""
    assert seen == [[f"epoch-{2:020}"]]
    assert sorted(path.name for path in folder.iterdir()) == [f"epoch-{epoch:020}" for epoch in (2, 3)]
