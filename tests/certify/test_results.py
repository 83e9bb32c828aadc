from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.certify.results import Mode, Outcome, Report, Seeded
from tests.certify.made_up import cell, evidence, report


def test_a_report_goes_through_json() -> None:
    made = report(cell(replace(evidence(), lost=2, doubled=1)), seeded=(Seeded("killed", "d", True),))
    assert Report.of(made.to_json()) == made


def test_a_run_is_added_to_an_earlier_one() -> None:
    first = replace(
        report(
            cell(evidence()),
            seeded=(Seeded("killed", "d", True),),
            notes=("Kafka was not tried", "not removed: a topic"),
        ),
        versions={"headrace": "1", "python": "3.11"},
    )
    later = replace(
        report(cell(evidence(), sink="kafka"), notes=("a note",)),
        began="2026-03-05T00:00:00+00:00",
        versions={"headrace": "1", "kafka": "4"},
    )
    both = later.added_to(first)
    assert [one.sink for one in both.cells] == ["postgres", "kafka"]
    assert both.seeded == first.seeded
    assert (both.began, both.seconds) == (first.began, first.seconds + later.seconds)
    assert both.versions == {"headrace": "1", "python": "3.11", "kafka": "4"}
    assert both.notes == ("not removed: a topic", "a note")


def test_what_held_is_known() -> None:
    broken = replace(evidence(), outcome=Outcome.BROKEN)
    not_run = replace(evidence(), outcome=Outcome.NOT_RUN)
    found = report(cell(evidence()), cell(broken, sink="kafka"), cell(not_run, sink="redis"))
    assert found.held == {(found.cells[0].name, evidence().scenario)}
    assert replace(found, seeded=(Seeded(evidence().scenario, "d", False),)).held == frozenset()


@pytest.mark.parametrize("mode", [Mode.FULL, Mode.SOAK])
def test_a_failure_stays_until_the_same_scenario_has_held(mode: Mode) -> None:
    """By chance it need not be met again, so a soak's failures stay."""
    broken = replace(evidence(), outcome=Outcome.BROKEN)
    other = replace(evidence(), scenario="another")
    first = replace(report(cell(broken)), mode=mode)
    later = replace(report(cell(other)), mode=mode).added_to(first)
    assert [one.scenario for one in later.cells[0].evidence] == [broken.scenario, "another"]
    assert not later.is_good
    mended = replace(report(cell(evidence())), mode=mode).added_to(later)
    assert mended.is_good == (mode is Mode.FULL)
    unknown = replace(report(cell(replace(other, outcome=Outcome.NOT_RUN))), mode=mode).added_to(mended)
    assert unknown.cells == mended.cells
