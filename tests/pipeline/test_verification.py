"""`verify` asks a connector's endpoint where it stands, and whose its tables are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.connectors.registry import find_connector
from headrace.connectors.sql.fence import FenceTable
from headrace.connectors.sqlite.database import SqliteDatabase
from headrace.model.key_range import FULL_RANGE
from headrace.pipeline.plan import plan
from headrace.pipeline.recovery_log import Decision
from headrace.pipeline.runtime_checkpoint import RuntimeCheckpoint
from headrace.pipeline.settings import PipelineSettings
from headrace.pipeline.state_paths import open_recovery_log
from headrace.pipeline.verification import Verdict, verify
from headrace.protocol.messages import Apply
from tests.pipeline.scenario import Scenario


def at(epoch: int, link: str = "link") -> RuntimeCheckpoint:
    offsets = {epoch: "v1\n{}\n{}"}
    return RuntimeCheckpoint("view", "lineage", epoch, ("orders",), offsets, link=f"{link} {epoch}")


class World:
    """A log and an endpoint of one materialization, each at an epoch of its own."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "view.db"
        self.settings: PipelineSettings = Scenario(folder, "sqlite", {"path": str(self.path)}).settings()
        (self.one,) = self.settings.materializations
        planned = plan(self.one)
        find_connector("sqlite").apply(Apply(planned.materialization, "1", lineage="lineage"))
        log = open_recovery_log(self.settings, "view")
        log.open({"lineage": "lineage"})
        for epoch in range(3):
            log.decide(Decision(epoch, at(epoch).to_json()))
            log.settle()

    def stand_at(self, checkpoint: RuntimeCheckpoint) -> None:
        fences = FenceTable(("main", "headrace_checkpoints"))
        with closing(SqliteDatabase(str(self.path))) as database, database.transaction():
            fence = fences.install(database, "view", FULL_RANGE)
            fences.commit(database, fence, checkpoint.to_json())

    def verdict(self) -> Verdict:
        (found,) = (one for one in verify(self.settings, self.one) if one.what == "endpoint sqlite")
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("epoch", [2, 3])
def test_it_stands_where_the_log_does_or_one_epoch_later(world: World, epoch: int) -> None:
    world.stand_at(at(epoch))
    assert world.verdict() == Verdict("endpoint sqlite", f"its tables, at epoch {epoch}", ())


@pytest.mark.parametrize(
    ("checkpoint", "said"),
    [
        (at(1), "it stands at epoch 1, and the recovery log at epoch 2: it was restored from an older copy"),
        (at(4), "it stands at epoch 4, and the recovery log at epoch 2"),
        (at(2, "other"), "its epoch 2 is of another history than that of the recovery log"),
    ],
)
def test_it_stands_elsewhere(world: World, checkpoint: RuntimeCheckpoint, said: str) -> None:
    world.stand_at(checkpoint)
    assert world.verdict().problems == (said,)


def test_its_table_is_gone_or_was_made_anew(world: World) -> None:
    world.stand_at(at(2))
    with closing(sqlite3.connect(world.path)) as database:
        database.execute("DROP TABLE orders")
    (problem,) = world.verdict().problems
    assert "main.orders is gone, and up to epoch 2 everything was written to it" in problem
    planned = plan(world.one)
    find_connector("sqlite").apply(Apply(planned.materialization, "1"))
    (problem,) = world.verdict().problems
    assert "main.orders is another one than epoch 2 was written to" in problem


def test_it_does_not_answer(world: World) -> None:
    one = replace(world.one, endpoint={"path": "/nowhere/view.db"})
    (found,) = (one for one in verify(world.settings, one) if one.what == "endpoint sqlite")
    assert "the folder of '/nowhere/view.db' does not exist" in found.problems[0]
