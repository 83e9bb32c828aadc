"""`headrace run` and `headrace status`, as somebody would call them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition

from devtools.kafka_broker import KafkaBroker
from headrace.cli import cli
from headrace.errors import ConfigError
from headrace.pipeline.sources import lag as lag_module
from tests.pipeline.scenario import Scenario
from tests.pipeline.scenarios import MakeScenario
from tests.pipeline.scenarios import make_scenario as make_scenario
from tests.waiting import DEADLINE_SECONDS


def headrace(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "headrace", *arguments]


def status_of(file: Path) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["status", str(file), "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    (found,) = json.loads(result.output)
    return dict(found)


def since(moment: float) -> float:
    """Returns the seconds since then; Iceberg and Kafka drop fractions of a millisecond."""
    return time.time() - moment + 0.001


def group_offsets(broker: KafkaBroker, scenario: Scenario, group: str) -> int:
    """How far a monitor of lag believes us to be, over both partitions."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    places = consumer.committed(
        [TopicPartition(scenario.topic, number) for number in (0, 1)], timeout=DEADLINE_SECONDS
    )
    consumer.close()
    return sum(max(0, place.offset) for place in places)


@pytest.mark.full  # tests/docs/test_pipeline_examples.py calls `run` and `status` of the README
def test_from_the_first_epoch_to_an_orderly_end(
    make_scenario: MakeScenario, kafka_broker: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `status` soon gives up on a lag that it cannot determine; this test needs the value.
    monkeypatch.setattr(lag_module, "_TIMEOUT", DEADLINE_SECONDS)
    scenario, view = make_scenario("kafka", "sqlite", 2)
    file = scenario.configure()
    begun = time.time()
    scenario.write(50)
    before = status_of(file)
    assert (before["epoch"], before["fence"], before["guarantee"]) == (None, 0, "exactly-once")
    (lag,) = before["lag"]
    assert (lag["source"], lag["rows"], lag["why"]) == (scenario.topic, 50, "")
    assert 0 <= lag["seconds"] <= since(begun)

    process = subprocess.Popen(
        headrace("run", str(file), "--json"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    assert process.stdout is not None
    try:
        # Whoever first asks of a group has the broker make what it keeps groups in, which takes a while.
        assert group_offsets(kafka_broker, scenario, "headrace-view") == 0
        events = []
        for line in process.stdout:
            events.append(json.loads(line))
            done = sum(event["read"] for event in events if event["event"] == "epoch")
            if done == 50 and len(scenario.written) == 50:
                scenario.write(50)
            if done == 100:
                break
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=DEADLINE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert errors == "", "its logs are quiet"
    assert events[0]["event"] == "planned"
    assert events[0]["guarantee"] == "exactly-once"
    epochs = [event for event in events if event["event"] == "epoch"]
    assert all(event["good"] + event["dead"] == event["read"] for event in epochs)
    scenario.assert_exact(view())

    after = status_of(file)
    assert (after["epoch"], after["fence"], after["committed"]) == (epochs[-1]["epoch"], 1, True)
    assert after["lag"][0]["rows"] == 0
    assert group_offsets(kafka_broker, scenario, "headrace-view") == 100
    table = CliRunner().invoke(cli, ["status", str(file)], catch_exceptions=False)
    assert "exactly-once" in table.output
    assert "0 rows" in table.output


def test_how_far_a_collection_is_ahead(make_scenario: MakeScenario) -> None:
    scenario, _ = make_scenario("collection", "sqlite")
    file = scenario.configure()
    (lag,) = status_of(file)["lag"]
    assert lag["rows"] is None
    assert lag["why"].startswith("there is no catalog at ")
    assert not scenario.data.exists(), "who only looks makes nothing"
    assert not scenario.state.exists()
    begun = time.time()
    scenario.write(30)
    scenario.write(20)
    (lag,) = status_of(file)["lag"]
    assert lag["rows"] == 50
    assert 0 < lag["seconds"] <= since(begun)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nobody"], "'nobody'"),
        (["--conf", "spark.x"], "write it as KEY=VALUE"),
    ],
)
def test_bad_input(make_scenario: MakeScenario, arguments: list[str], sentence: str) -> None:
    scenario, _ = make_scenario("collection", "sqlite")
    file = scenario.configure()
    result = CliRunner().invoke(cli, ["run", str(file), *arguments])
    assert result.exit_code != 0
    said = result.exception.message if isinstance(result.exception, ConfigError) else result.output
    assert sentence in said
    assert not Path(scenario.endpoint["path"]).exists(), "nothing is half-done"


def test_help_has_examples() -> None:
    for command in ("run", "status"):
        result = CliRunner().invoke(cli, [command, "--help"])
        assert f"headrace {command} headrace.yaml" in result.output
    assert os.environ.get("HEADRACE_JARS_CACHE")
