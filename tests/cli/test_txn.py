"""`headrace txn` shows and aborts what a dead pipeline left open on a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from devtools.kafka_broker import KafkaBroker
from headrace.cli import cli
from headrace.cli.txn import clusters
from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.pipeline.recovery_log import Decision, RecoveryLog
from headrace.pipeline.state_paths import open_recovery_log
from tests.pipeline.scenario import Scenario
from tests.sinks.kafka_world import World


@pytest.fixture
def world(kafka_broker: KafkaBroker) -> World:
    world = World(kafka_broker)
    world.writer = "view"
    world.sink().start(None, None, 1)
    return world


@pytest.fixture
def file(tmp_path: Path, world: World) -> Path:
    scenario = Scenario(tmp_path, "sqlite", {"path": str(tmp_path / "view.db")})
    options = {"bootstrap": world.broker.bootstrap, "checkpoints": world.checkpoints}
    scenario.sinks["topic"] = {"format": "kafka", "options": options}
    scenario.targets["topic"] = world.topic
    return scenario.configure()


@pytest.fixture
def log(file: Path) -> RecoveryLog:
    log = open_recovery_log(load_config(file).pipeline_settings(), "view")
    log.open({"shards": 1, "lineage": "ours"})
    return log


def run(*arguments: str, answer: str = "") -> Result:
    runner = CliRunner(env={"COLUMNS": "200"})
    return runner.invoke(cli, ["txn", *arguments], input=answer, catch_exceptions=False)


def by_hand(world: World) -> list[str]:
    return ["--bootstrap", world.broker.bootstrap, "--option", f"checkpoints={world.checkpoints}"]


def listed(world: World, *arguments: str) -> list[dict[str, Any]]:
    return [
        dict(one)
        for one in json.loads(run("list", "--json", *arguments).output)
        if one["transactional_id"] == world.id()
    ]


def test_what_is_open_is_shown_with_its_epoch(world: World, file: Path, log: RecoveryLog) -> None:
    assert listed(world, str(file)) == []
    handle = world.handle(7, [1, 2], fence=4)
    (found,) = listed(world, *by_hand(world))
    assert (found["state"], found["materialization"], found["epoch"]) == ("Ongoing", "view", 7)
    assert (found["fence"], found["decided"]) == (4, None)
    assert found["producer_id"] == handle["transactions"][0]["producer_id"]
    assert found["topics"] == {world.topic: [0], world.checkpoints: [0]}
    assert listed(world, str(file))[0]["decided"] is False
    log.decide(Decision(7, {}, {"out": handle}))
    assert listed(world, str(file))[0]["decided"] is True
    shown = run("list", str(file)).output
    (row,) = [line.split() for line in shown.splitlines() if line.startswith(f"{world.id()} ")]
    assert row[1] == "Ongoing"
    assert row[4:8] == ["view", "7", "4", "yes"]
    world.sink().commit(7, handle)
    assert listed(world, str(file)) == []


def test_one_that_was_never_decided_is_aborted_after_a_question(
    world: World, file: Path, log: RecoveryLog
) -> None:
    world.handle(7, [1, 2])
    asked = run("abort", world.id(), str(file), answer="n\n")
    assert (asked.exit_code, world.state().state) == (1, "Ongoing")
    assert f"abort {world.id()}, open for " in asked.output
    done = run("abort", world.id(), str(file), "--yes")
    assert done.output == f"{world.id()} is aborted\n"
    assert (world.state().is_open, world.values()) == (False, [])


def test_one_that_was_decided_is_left_to_the_pipeline(world: World, file: Path, log: RecoveryLog) -> None:
    handle = world.handle(7, [1, 2])
    log.decide(Decision(7, {}, {"out": handle}))
    with pytest.raises(ConfigError, match="was decided, and the next start of 'view' commits it"):
        run("abort", world.id(), str(file), "--yes")
    assert world.state().state == "Ongoing"
    run("abort", world.id(), str(file), "--yes", "--even-if-decided")
    assert not world.state().is_open
    world.sink().commit(7, handle)  # and even then nothing is lost
    assert world.values() == [1, 2]


def test_without_the_log_nobody_knows_what_was_decided(world: World) -> None:
    world.handle(7, [1, 2])
    with pytest.raises(ConfigError, match="is in the recovery log of 'view': name the file that has it"):
        run("abort", world.id(), "--yes", *by_hand(world))
    assert run("abort", world.id(), "--yes", "--even-if-decided", *by_hand(world)).exit_code == 0
    with pytest.raises(ConfigError, match="has no open transaction"):
        run("abort", world.id(), "--yes", "--even-if-decided", *by_hand(world))


def test_a_cluster_is_looked_at_once_however_its_sinks_are_tuned(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "sqlite", {"path": str(tmp_path / "view.db")})
    common = {"bootstrap": "broker:9092"}
    for name, more in {
        "one": {},
        "tuned": {"linger.ms": "50", "client.id": "x"},
        "other": {"checkpoints": "elsewhere"},
        "secure": {"security.protocol": "SSL"},
    }.items():
        scenario.sinks[name] = {"format": "kafka", "options": {**common, **more}}
        scenario.targets[name] = f"topic-{name}"
    found = clusters(load_config(scenario.configure()).pipeline_settings(), None, ())
    assert [(one.checkpoints, dict(one.client.options)) for one in found] == [
        ("headrace-checkpoints", {}),
        ("elsewhere", {}),
        ("headrace-checkpoints", {"security.protocol": "SSL"}),
    ]


def test_options_are_those_of_the_sink(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--option 'a' has no value"):
        run("list", "--bootstrap", "a:1", "--option", "a")
    with pytest.raises(ConfigError, match="the format kafka has no option 'a'"):
        run("list", "--bootstrap", "a:1", "--option", "a=b")
    with pytest.raises(ConfigError, match="say where to look: name a file, or a broker"):
        run("list")
    file = Scenario(tmp_path, "sqlite", {"path": str(tmp_path / "view.db")}).configure()
    with pytest.raises(ConfigError, match="no sink of the file has the format kafka"):
        run("list", str(file))
