"""`headrace verify` and `headrace maintain`, on what pipelines have written."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.cli import cli
from headrace.pipeline.maintenance import maintain
from headrace.pipeline.recovery_log import Decision, LoggedDecision, effective_decisions
from headrace.pipeline.settings import DeadLetterSettings
from headrace.pipeline.verification import verify
from tests.pipeline.scenario import Scenario
from tests.pipeline.sink_places import IcebergPlace, ParquetPlace, assert_sink_exact


def headrace(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


Written = tuple[Scenario, ParquetPlace, IcebergPlace]


def two_epochs(folder: Path) -> Written:
    scenario = Scenario(folder, "", {})
    places = ParquetPlace(scenario, "files"), IcebergPlace(scenario, "table", "view")
    scenario.write(60)
    scenario.write(60)
    scenario.run()
    return scenario, *places


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Written:
    """Writes once for all tests, which do not change it."""
    return two_epochs(tmp_path_factory.mktemp("written"))


def test_what_was_written_is_right(written: Written) -> None:
    scenario, _, _ = written
    result = headrace("verify", scenario.configure(), "--json")
    assert result.exit_code == 0, result.output
    (verdicts,) = json.loads(result.output).values()
    assert [verdict["what"].split(" ")[0] for verdict in verdicts] == [
        "recovery",
        "files.orders",
        "table.orders",
        "dead",
    ]
    assert not any(verdict["problems"] for verdict in verdicts)
    assert {verdict["looked_at"] for verdict in verdicts} == {"epochs 0 to 1"}
    assert "right" in headrace("verify", scenario.configure()).output


def test_an_epoch_that_is_missing_or_there_twice(written: Written, tmp_path: Path) -> None:
    scenario, files, _ = written
    first, second = sorted(files.folder.glob("epoch-*"))
    file, *_ = second.glob("*.parquet")
    again = file.with_name("again.parquet")
    shutil.move(first, tmp_path / "first")
    shutil.copy(file, again)
    try:
        result = headrace("verify", scenario.configure(), "--json")
    finally:
        shutil.move(tmp_path / "first", first)
        again.unlink()
    assert result.exit_code == 1
    (verdicts,) = json.loads(result.output).values()
    (problems,) = [verdict["problems"] for verdict in verdicts if verdict["problems"]]
    assert len(problems) == 2
    assert problems[0].startswith("epoch 0 was committed with")
    assert problems[1].startswith("epoch 1 was committed with")


@pytest.mark.full  # every other finding of `verify` is tested in this file
def test_dead_letters_that_were_moved(tmp_path: Path, spark: object) -> None:
    """What went to the place before is not looked for in the one of now, nor kept there."""
    scenario = Scenario(tmp_path, "", {})
    ParquetPlace(scenario, "files")
    table = DeadLetterSettings("iceberg", "quality.dead")
    scenario.write(60)
    scenario.run(dead_letters=table)
    scenario.write(60)
    scenario.run()
    for settings in (scenario.settings(), scenario.settings(dead_letters=table)):
        (one,) = settings.materializations
        assert [problem for verdict in verify(settings, one) for problem in verdict.problems] == []
        list(maintain(settings, timedelta(days=1)))


def test_a_table_that_is_not_ours(written: Written) -> None:
    scenario, _, _ = written
    assert headrace("verify", scenario.configure(), "--table", "headrace.orders").exit_code == 0
    result = headrace("verify", scenario.configure(), "--table", "headrace.nowhere")
    assert "has no table 'headrace.nowhere'" in str(result.exception)


@pytest.mark.full  # each format's maintenance is tested in tests/sinks
@pytest.mark.usefixtures("written")
def test_maintenance_between_two_runs(tmp_path: Path) -> None:
    scenario, files, table = two_epochs(tmp_path)
    result = headrace("maintain", scenario.configure(), "--older-than", "24h")
    assert result.exit_code == 0, result.output
    assert "view, table.orders: " in result.output, "also after another table of that name, in this process"
    scenario.write(60)
    scenario.run()
    assert_sink_exact(scenario, files)
    assert_sink_exact(scenario, table)
    assert headrace("verify", scenario.configure()).exit_code == 0


def test_what_is_staged_is_not_to_be_removed(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, "", {})
    ParquetPlace(scenario)
    result = headrace("maintain", scenario.configure(), "--older-than", "5m")
    assert "write at least 24h" in str(result.exception)


def past(epoch: int, *, committed: bool = True, moved: bool = False) -> LoggedDecision:
    summary = {"moved": "the endpoint was restored"} if moved else {"read": epoch}
    return LoggedDecision(Decision(epoch, {}, {}, summary), "", 1, committed)


def test_epochs_that_were_taken_back_do_not_count() -> None:
    """The latest comes first: 1 and 2 were run again after the endpoint went back to 0, and 2 not yet."""
    latest_first = [past(1), past(0, moved=True), past(2), past(1), past(0)]
    found = effective_decisions(latest_first)
    assert [decision.epoch for decision in found] == [0, 1]
    assert found[1] is latest_first[0].decision
    assert [decision.epoch for decision in effective_decisions([past(3, committed=False), past(2)])] == [2]
