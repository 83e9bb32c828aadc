from __future__ import annotations

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

import headrace
from headrace.certify.ingest import certification
from headrace.certify.ingest.certification import QUICK, certify_ingest, run, scenarios_of_ingest, try_defect
from headrace.certify.ingest.scenarios import SCENARIOS, Scenario
from headrace.certify.ingest.seeded import DEFECTS, Defect
from headrace.certify.ingest.stage import Stage
from headrace.certify.progress import Steps
from headrace.certify.results import Outcome
from headrace.errors import UnexpectedFailure
from headrace.model.tiers import Tier
from headrace.pipeline.settings import Guarantee

NATIVE_SOURCES = Path(__file__).parents[3] / "native/core/src"

BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.full  # tests/crash/ingest kills the server once for each tier
@pytest.mark.processes
@pytest.mark.timeout(1800)
def test_a_quick_certification(tmp_path: Path) -> None:
    progress: list[str] = []
    steps = Steps(lambda text, _share: progress.append(text))
    cells, seeded = certify_ingest(tmp_path, 1, scenarios_of_ingest(quick=True), True, steps)
    assert [(cell.source, cell.sink, cell.profile) for cell in cells] == [
        ("Flight client", f"ingest: {tier.name}", "-") for tier in Tier
    ]
    assert not [one for cell in cells for one in cell.evidence if one.outcome is not Outcome.HELD]
    assert [cell.shown for cell in cells] == [Guarantee.AT_MOST_ONCE, *[Guarantee.EXACTLY_ONCE] * 3]
    assert not [one for one in seeded if not one.caught]
    assert {one.scenario for one in seeded} == set(QUICK)
    assert len(progress) == len(QUICK) + len(seeded)


def test_every_scenario_has_a_defect_that_it_notices() -> None:
    assert {defect.scenario for defect in DEFECTS} == set(BY_NAME)
    assert not [
        defect for defect in DEFECTS if not set(defect.points) <= set(BY_NAME[defect.scenario].points)
    ]
    assert not [defect for defect in DEFECTS if find_spec(defect.module) is None]
    assert set(QUICK) <= set(BY_NAME)


def test_every_tier_is_looked_at() -> None:
    for names in (set(BY_NAME), set(QUICK)):
        assert {tier for name in names for tier in BY_NAME[name].tiers} == set(Tier)


def test_every_point_is_one_of_the_code() -> None:
    text = "\n".join(path.read_text() for path in Path(headrace.__path__[0]).rglob("*.py"))
    points = set(re.findall(r'reached\("([^"]+)"\)', text))
    native = "\n".join(path.read_text() for path in NATIVE_SOURCES.rglob("*.rs"))
    points |= set(re.findall(r'reached\("([^"]+)"\)', native))
    points |= {f"committer {step}" for step in re.findall(r'observe\("([^"]+)"\)', text)}
    assert not {point for scenario in SCENARIOS for point in scenario.points} - points


def scenario_that(message: str) -> Scenario:
    def fail(_: Stage) -> None:
        raise UnexpectedFailure(message)

    return replace(BY_NAME["power lost"], run=fail)


def test_what_fails_in_a_run_is_a_finding_of_each_of_its_tiers(tmp_path: Path) -> None:
    verdict = run(scenario_that(f"{tmp_path / 'run'}/log is cut off"), tmp_path / "run", 1)
    assert verdict.told == ("FOLDER/log is cut off",)
    assert {verdict.outcome(tier) for tier in BY_NAME["power lost"].tiers} == {Outcome.BROKEN}


def test_a_run_without_an_end_state_has_shown_nothing(tmp_path: Path) -> None:
    scenario = replace(BY_NAME["power lost"], run=lambda _: None)
    assert run(scenario, tmp_path / "run", 1).outcome(Tier.COMMITTED) is Outcome.BROKEN


@pytest.mark.parametrize(
    ("message", "caught"), [("writes are missing: one", True), ("no module of that name", False)]
)
def test_a_defect_is_caught_only_by_what_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, message: str, caught: bool
) -> None:
    monkeypatch.setattr(certification, "_TRIES", 1)
    defect = Defect("power lost", "told_before_sync", "it is told too early", "writes are missing")
    seeded = try_defect(scenario_that(message), defect, tmp_path, 1)
    assert seeded.caught is caught
    assert message in seeded.told
