"""What counts as worse than before, and what does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.certify.comparison import worse_than
from headrace.certify.results import Cell, Outcome, Seeded
from tests.certify.made_up import (
    AT_LEAST,
    BROKEN,
    EFFECTIVELY,
    HELD,
    NOT_RUN,
    TWICE,
    cell,
    everything,
    evidence,
    report,
)

NAME = "collection → postgres (single-node-durable)"


def compared(now: Cell, before: Cell) -> list[str]:
    return worse_than(report(now), report(before))


def test_nothing_is_worse_than_itself() -> None:
    assert worse_than(everything(), everything()) == []


@pytest.mark.parametrize(
    ("now", "before", "said"),
    [
        (BROKEN, HELD, "cut is broken: why (seed 7); it held before"),
        (TWICE, HELD, "cut counts something twice: why (seed 7); it held before"),
        (BROKEN, TWICE, "cut is broken: why (seed 7); before, it only counted something twice"),
        (BROKEN, NOT_RUN, "cut is broken: why (seed 7); it was not run before"),
    ],
)
def test_a_scenario_that_got_worse(now: Outcome, before: Outcome, said: str) -> None:
    assert compared(cell(evidence("cut", now, "why")), cell(evidence("cut", before))) == [f"{NAME}: {said}"]


@pytest.mark.parametrize(
    ("now", "before"),
    [(BROKEN, BROKEN), (TWICE, TWICE), (TWICE, BROKEN), (HELD, BROKEN), (NOT_RUN, HELD), (NOT_RUN, BROKEN)],
)
def test_a_scenario_that_did_not(now: Outcome, before: Outcome) -> None:
    assert compared(cell(evidence("cut", now)), cell(evidence("cut", before))) == []


def test_what_a_quick_run_leaves_out_is_not_worse() -> None:
    full = report(cell(evidence("a"), evidence("b")), cell(evidence("a"), sink="redis"))
    assert worse_than(report(cell(evidence("a"))), full) == []
    assert worse_than(report(cell()), full) == []
    assert worse_than(report(), full) == []


def test_a_further_failure_of_a_cell_that_failed() -> None:
    before = cell(evidence("a", BROKEN), evidence("b"))
    assert compared(cell(evidence("a", BROKEN), evidence("b", BROKEN)), before) == [
        f"{NAME}: b is broken (seed 7); it held before"
    ]


def test_a_new_cell_that_fails() -> None:
    now = report(cell(evidence("a", BROKEN), evidence("b")), cell(evidence("a"), sink="redis"))
    assert worse_than(now, report()) == [f"{NAME}: a is broken (seed 7); this cell is new"]


def test_a_lower_guarantee() -> None:
    now, before = cell(evidence(), claimed=EFFECTIVELY), cell(evidence())
    assert compared(now, before) == [f"{NAME}: it is effectively-once, and was exactly-once"]
    assert compared(before, now) == []


def test_a_lower_claim_excuses_nothing_that_was_not_excused_before() -> None:
    now = cell(evidence("a", TWICE), claimed=AT_LEAST)
    assert compared(now, cell(evidence("a"))) == [
        f"{NAME}: a counts something twice (seed 7); it held before"
    ]


def test_an_at_least_once_sink_may_count_twice_today_and_not_yesterday() -> None:
    now, before = cell(evidence("a", TWICE), claimed=AT_LEAST), cell(evidence("a"), claimed=AT_LEAST)
    assert compared(now, before) == []


def test_an_at_least_once_sink_may_lose_nothing() -> None:
    now, before = cell(evidence("a", BROKEN), claimed=AT_LEAST), cell(evidence("a", TWICE), claimed=AT_LEAST)
    assert compared(now, before) == [f"{NAME}: a is broken (seed 7); before, it only counted something twice"]


def test_the_worst_of_several_runs_of_a_scenario_counts() -> None:
    bad = replace(evidence("a", BROKEN), seed=99)
    assert compared(cell(evidence("a"), bad, evidence("a")), cell(evidence("a"))) == [
        f"{NAME}: a is broken (seed 99); it held before"
    ]
    assert compared(cell(evidence("a", BROKEN)), cell(evidence("a"), bad)) == []


def test_cells_of_one_combination_are_compared_as_one() -> None:
    now = report(cell(evidence("a")), cell(evidence("b", BROKEN)))
    assert len(worse_than(now, report(cell(evidence("b")), cell(evidence("a"))))) == 1
    assert worse_than(now, report(cell(evidence("b", BROKEN)), cell(evidence("a")))) == []


@pytest.mark.parametrize(
    ("before", "said"),
    [
        ((Seeded("a", "no fence", True),), ["it did before"]),
        ((), ["it was not tried before"]),
        ((Seeded("a", "another", False),), ["it was not tried before"]),
        ((Seeded("a", "no fence", False),), []),
    ],
)
def test_a_scenario_that_is_void_now(before: tuple[Seeded, ...], said: list[str]) -> None:
    now = report(cell(evidence("a")), seeded=(Seeded("a", "no fence", False, "as expected"),))
    assert worse_than(now, report(cell(evidence("a")), seeded=before)) == [
        f"a is void, for it does not notice the defect 'no fence'; {then}: as expected" for then in said
    ]


def test_a_defect_that_is_not_tried_now_makes_nothing_void() -> None:
    before = report(cell(evidence("a")), seeded=(Seeded("a", "no fence", True),))
    assert worse_than(report(cell(evidence("a"))), before) == []
