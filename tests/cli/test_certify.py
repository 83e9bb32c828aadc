"""`headrace certify`: what it is told, and a quick run that must not be worse than the last whole one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headrace.certify.meanings import MEANINGS
from headrace.certify.results import Outcome, Report
from headrace.cli import cli
from headrace.errors import HeadraceError

ROOT = Path(__file__).parents[2]
LAST = ROOT / "docs/certification.json"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["certify", *arguments], catch_exceptions=False)


def test_scenarios_are_listed_with_what_they_mean() -> None:
    shown = run("--list").output
    for name, meaning in MEANINGS.items():
        assert f"{name}\n    {meaning}\n" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scenario", "nonsense"], "there is no scenario 'nonsense'; there are: "),
        (["--endpoint", "mysql=x"], "--endpoint mysql=x: write KIND=VALUE"),
        (["--no-embedded"], "there is no endpoint to certify: name one with --endpoint"),
        (["--compare", "pyproject.toml"], "is not the evidence of a certification"),
        (["--json", "nowhere/evidence.json"], "there is no folder nowhere for evidence.json: make it first"),
        (["--quick", "--endpoint", "redis=redis://127.0.0.1:1"], "127.0.0.1:1"),
        (["--soak", "1", "--scenario", "clock stepped back"], "--soak draws from other scenarios"),
        (["--keep", "src"], "src is not empty: name a new folder"),
        (["examples/headrace.yaml", "--endpoint", "kafka=x:1"], "give either FILE or --endpoint"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_run(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(HeadraceError, match=said):
        run(*arguments)


@pytest.mark.full
@pytest.mark.processes
@pytest.mark.timeout(3600)
def test_a_quick_certification_is_not_worse_than_the_last(tmp_path: Path) -> None:
    evidence, page = tmp_path / "evidence.json", tmp_path / "evidence.html"
    written = ["--json", str(evidence), "--html", str(page)]
    command = [sys.executable, "-m", "headrace", "certify", "--quick", "--seed", "1", "--compare", str(LAST)]
    ran = subprocess.run([*command, *written], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr[-4000:]}"
    report = Report.of(json.loads(evidence.read_text()))
    assert report.is_good
    assert {cell.sink for cell in report.cells} >= {"sqlite", "parquet", "iceberg", "delta"}
    assert not [one for cell in report.cells for one in cell.evidence if one.outcome is Outcome.NOT_RUN], (
        "a point was not reached"
    )
    assert "exactly-once" in page.read_text()
