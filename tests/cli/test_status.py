"""`headrace status` of a recovery log that somebody else writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headrace.cli import cli
from headrace.config import load_config
from headrace.errors import ConfigError
from headrace.pipeline.recovery_log import Decision, RecoveryLog
from headrace.pipeline.state_paths import open_recovery_log
from tests.pipeline.scenario import Scenario

SUMMARY = {"read": 1200, "good": 1199, "dead": 1, "keys": 30, "loaded": 2, "stored": 30, "total_ms": 250}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Scenario(tmp_path, "sqlite", {"path": str(tmp_path / "view.db")}).configure()


@pytest.fixture
def log(file: Path) -> RecoveryLog:
    log = open_recovery_log(load_config(file).pipeline_settings(), "view")
    log.open({"shards": 1, "lineage": "ours"})
    return log


def decide(log: RecoveryLog, epoch: int, **handles: Any) -> None:
    log.decide(Decision(epoch, {}, handles, SUMMARY))


def run_status(file: Path, *arguments: str) -> str:
    wide = CliRunner(env={"COLUMNS": "160"})
    result = wide.invoke(cli, ["status", str(file), *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def status_of(file: Path, *arguments: str) -> dict[str, Any]:
    (found,) = json.loads(run_status(file, "--json", *arguments))
    return dict(found)


def test_what_has_nothing_left_to_commit_is_committed(file: Path, log: RecoveryLog) -> None:
    """Without anybody's word for it, since a pipeline that runs gives that when it has time."""
    decide(log, 0, connector={})
    assert status_of(file)["committed"]
    decide(log, 1, connector={"connector_checkpoints": {"00000000-ffffffff": {"staged": "a file"}}})
    assert not status_of(file)["committed"]
    decide(log, 2, connector={}, **{"dead-letters": {"rows": 3}})
    found = status_of(file)
    assert not found["committed"]
    assert [epoch["committed"] for epoch in found["epochs"]] == [False, True, True]
    log.settle()
    assert status_of(file)["committed"]


def test_the_last_epochs_are_shown(file: Path, log: RecoveryLog) -> None:
    for epoch in range(13):
        decide(log, epoch, connector={})
    found = status_of(file)
    assert (found["epoch"], found["fence"], found["shards"]) == (12, 1, 1)
    assert [epoch["epoch"] for epoch in found["epochs"]] == list(range(12, 2, -1))
    assert found["epochs"][0].items() >= SUMMARY.items()
    assert found["epochs"][0]["decided_at"] > "2026"
    assert len(status_of(file, "--epochs", "100")["epochs"]) == 13
    lines = run_status(file, "--epochs", "2").splitlines()
    assert lines[-3].split() == [
        "epoch",
        "decided",
        "at",
        "read",
        "good",
        "dead",
        "keys",
        "stored",
        "ms",
        "state",
    ]
    for number, line in zip(("12", "11"), lines[-2:], strict=True):
        first, _, _, *rest = line.split()
        assert (first, rest) == (number, ["1,200", "1,199", "1", "30", "30", "250", "committed"])


def test_a_log_that_was_moved_says_why(file: Path, log: RecoveryLog) -> None:
    log.decide(Decision(4, {}, {}, {"moved": "the endpoint stands at epoch 4"}))
    assert "moved: the endpoint stands at epoch 4" in run_status(file)
    assert status_of(file)["epochs"][0]["moved"] == "the endpoint stands at epoch 4"


def test_a_materialization_that_never_ran(file: Path) -> None:
    found = status_of(file)
    assert (found["epoch"], found["committed"], found["epochs"]) == (None, True, [])
    assert "none yet" in run_status(file)


def test_an_error_is_shown_as_it_is(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConfigError("column [bold] of [/] is gone")

    monkeypatch.setattr("headrace.cli.status.plan", refuse)
    assert "not known: column [bold] of [/] is gone" in run_status(file)


def test_a_sink_that_does_not_commit_is_named(file: Path, log: RecoveryLog) -> None:
    decide(log, 0, lake={"staged": "x"}, files={"staged": "y"})
    log.record_stuck(0, {"lake": "the catalog [1] does not answer"})
    assert status_of(file)["stuck"] == {"lake": "the catalog [1] does not answer"}
    shown = run_status(file)
    assert "stuck: lake" in shown
    assert "the catalog [1] does not answer" in shown
    log.record_stuck(0, {})
    assert status_of(file)["stuck"] == {}
    log.record_stuck(0, {"lake": "again"})
    log.settle()
    assert status_of(file)["stuck"] == {}, "it has committed since"
    decide(log, 1, lake={"staged": "z"})
    assert status_of(file)["stuck"] == {}, "that was of another epoch"


def test_a_run_that_fails_is_not_hidden_by_what_was_decided(file: Path, log: RecoveryLog) -> None:
    log.record_failure("the endpoint went away")
    assert "the endpoint went away" in status_of(file)["failure"]
    assert "failed, and no epoch since" in run_status(file)
    decide(log, 0, connector={})
    assert status_of(file)["failure"] == ""
    log.record_failure("it went away again")
    assert status_of(file)["failure"].endswith(": it went away again")
    log.record_failure("")
    assert status_of(file)["failure"] == ""
