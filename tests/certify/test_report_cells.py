"""How a cell stands, and how the matrix is laid out."""

from __future__ import annotations

import json

import pytest

from headrace.certify.meanings import MEANINGS, coverage
from headrace.certify.report_cells import (
    anchors,
    duration,
    how_many_ran,
    matrices,
    moment,
    name_of,
    standing,
    untried,
    verdict,
    when,
)
from headrace.certify.results import Cell, Mode, Report, Seeded
from tests.certify.made_up import (
    AT_LEAST,
    AT_MOST,
    BROKEN,
    EFFECTIVELY,
    NOT_RUN,
    TWICE,
    cell,
    everything,
    evidence,
    report,
)


@pytest.mark.parametrize(
    ("one", "kind", "words"),
    [
        (cell(evidence()), "exactly-once", "exactly-once"),
        (cell(evidence(), claimed=EFFECTIVELY), "effectively-once", "effectively-once"),
        (cell(evidence(outcome=TWICE), claimed=AT_LEAST), "at-least-once", "at-least-once"),
        (cell(evidence(), claimed=AT_MOST), "at-most-once", "at-most-once"),
        (cell(evidence(), evidence("b", TWICE)), "failed", "failed: b"),
        (cell(evidence("b", BROKEN), claimed=AT_LEAST), "failed", "failed: b"),
        (cell(evidence("b", BROKEN), evidence("b", BROKEN)), "failed", "failed: b"),
        (cell(*(evidence(name, BROKEN) for name in "abcd")), "failed", "failed: a, b and 2 more"),
        (cell(evidence(outcome=NOT_RUN)), "not-run", "not run"),
        (cell(), "not-run", "not run"),
        (None, "not-run", "not run"),
    ],
)
def test_a_cell_says_what_was_shown_or_what_failed(one: Cell | None, kind: str, words: str) -> None:
    found = standing(one, ())
    assert (found.kind, found.words) == (kind, words)


def test_what_holds_in_a_void_scenario_shows_nothing() -> None:
    assert standing(cell(evidence("blind")), ["blind"]).kind == "void"
    assert standing(cell(evidence("blind"), evidence("other", NOT_RUN)), ["blind"]).kind == "void"
    assert standing(cell(evidence("blind"), evidence("other")), ["blind"]).kind == "exactly-once"
    assert standing(cell(evidence("blind", NOT_RUN)), ["blind"]).kind == "not-run"


def test_what_a_void_scenario_finds_broken_is_broken() -> None:
    assert standing(cell(evidence("blind", BROKEN), evidence("other")), ["blind"]).kind == "failed"


def test_every_kind_has_a_sign_of_its_own() -> None:
    found = {standing(one, everything().void) for one in everything().cells}
    assert len({one.kind for one in found}) == 7
    assert len({one.sign for one in found}) == 7


def test_ingest_has_a_matrix_of_its_own() -> None:
    views, ingest = matrices(everything())
    assert views.sinks == ("postgres", "redis", "delta", "hudi", "webhook")
    assert [column.name for column in views.columns] == [
        "collection, dev-local",
        "collection, single-node-durable",
        "kafka, single-node-durable",
    ]
    assert ingest.title == "Ingest: what each tier promises"
    assert ingest.sinks == ("ingest: LOCAL_DISK", "ingest: COMMITTED")
    assert [column.name for column in ingest.columns] == ["Flight client"]


def test_no_cell_is_left_out_or_moved() -> None:
    whole = everything()
    found = {
        one for matrix in matrices(whole) for row in matrix.sinks for column in matrix.columns
        if (one := matrix.at(row, column)) is not None
    }  # fmt: skip
    assert found == set(whole.cells)
    assert matrices(report()) == ()


def test_cells_of_one_combination_are_one() -> None:
    (matrix,) = matrices(report(cell(evidence("b", BROKEN)), cell(evidence("a"))))
    assert standing(matrix.at("postgres", matrix.columns[0]), ()).words == "failed: b"


def test_anchors_differ_even_where_names_hardly_do() -> None:
    cells = [cell(sink="a b"), cell(sink="a-b"), cell(sink="é", source="→", profile="*"), cell(sink="a_b")]
    found = anchors(cells)
    assert len(set(found.values())) == len(cells)
    assert found["collection", "a b", "single-node-durable"] == "cell-collection-a-b-single-node-durable"


def test_a_cell_of_ingest_is_named_without_a_profile() -> None:
    assert name_of(cell(source="x", sink="ingest: MEMORY", profile="-")) == "x → MEMORY"
    assert name_of(cell(sink="redis")) == "collection → redis (single-node-durable)"


def test_how_many_scenarios_were_run() -> None:
    assert how_many_ran(cell(evidence())) == "1 scenario"
    assert how_many_ran(cell(evidence("a"), evidence("b", NOT_RUN))) == "1 of 2 scenarios"


def test_the_verdict_counts_every_cell_once() -> None:
    assert verdict(everything()) == (
        "NOT certified: 5 of 9 cells held what they claim, 2 failed, 1 with void scenarios alone, "
        "1 not run, 1 of 2 seeded defects noticed."
    )
    assert verdict(report(cell(evidence()))) == "Certified: 1 of 1 cell held what they claim."
    assert verdict(report()).startswith("Nothing was certified")


def test_a_scenario_without_a_defect_is_named() -> None:
    cells = cell(evidence("a"), evidence("b"), evidence("c", NOT_RUN))
    assert untried(report(cells, seeded=(Seeded("a", "d", True),))) == ["b"]


def test_times_are_for_people() -> None:
    assert moment("2026-03-04T06:06:07.123+01:00") == "2026-03-04 05:06:07 UTC"
    assert moment("yesterday") == "yesterday"
    assert [duration(one) for one in (4.25, 59.94, 754.4, 119.6, 7260)] == [
        "4.2 s",
        "59.9 s",
        "12 min 34 s",
        "2 min 0 s",
        "2 h 1 min",
    ]


def test_a_report_is_the_same_after_a_round_trip() -> None:
    whole = everything()
    assert Report.of(json.loads(json.dumps(whole.to_json()))) == whole


def test_what_is_covered_and_what_is_not() -> None:
    said = coverage(["killed in commit", "killed in commit", "woken task", "table shared"])
    assert said.startswith("Covered, by scenarios: crashes (1), zombies (1), ownership (1); not covered: ")
    assert "identity" in said.partition("not covered: ")[2]
    assert coverage(MEANINGS).count(";") == 0


def test_a_report_of_several_runs_says_so() -> None:
    once = Report(7, "2026-11-18T10:00:00+00:00", 60.0, Mode.FULL, {})
    assert when(once).startswith("The run began at 2026-11-18 10:00:00 UTC and took 1 min 0 s, in mode full")
    twice = once.added_to(once)
    assert when(twice).startswith(
        "It is of 2 runs, of which the first began at 2026-11-18 10:00:00 UTC; they"
    )
    assert Report.of(twice.to_json()).runs == 2
