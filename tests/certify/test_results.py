from __future__ import annotations

from dataclasses import replace

from headrace.certify.results import Outcome, Report, Seeded
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


def test_what_held_is_known_and_what_did_not_is_replaced() -> None:
    broken = replace(evidence(), outcome=Outcome.BROKEN)
    first = report(cell(evidence()), cell(broken, sink="kafka"))
    assert first.held == {first.cells[0].name}
    assert replace(first, seeded=(Seeded(evidence().scenario, "d", False),)).held == frozenset()
    later = report(cell(evidence(), sink="kafka"))
    both = later.added_to(first)
    assert [(one.sink, len(one.failures)) for one in both.cells] == [("postgres", 0), ("kafka", 0)]
