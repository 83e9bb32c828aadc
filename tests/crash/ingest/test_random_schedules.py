from __future__ import annotations

import re
from itertools import islice
from pathlib import Path

import pytest

import headrace
from tests.crash.ingest.random_faults import schedule
from tests.crash.ingest.random_faults.damage import DAMAGES
from tests.crash.ingest.random_faults.play import POINTS, START_POINTS
from tests.crash.ingest.random_faults.schedule import steps
from tests.crash.ingest.random_faults.troubles import COMMITTER_POINTS, TROUBLES


def test_a_seed_is_a_schedule() -> None:
    assert list(islice(steps(1), 50)) == list(islice(steps(1), 50))
    assert list(islice(steps(1), 50)) != list(islice(steps(2), 50))


def test_everything_is_drawn_sooner_or_later() -> None:
    drawn = list(islice(steps(1), 2000))
    assert {step.trouble for step in drawn} == set(TROUBLES)
    assert {step.damage for step in drawn} == set(DAMAGES)
    assert {step.copies for step in drawn} == {"nothing", "data", "catalog", "store"}


@pytest.mark.parametrize("seed", range(20))
def test_only_what_was_copied_is_restored_and_a_lie_meets_no_lost_disk(seed: int) -> None:
    copied: set[str] = set()
    for step in islice(steps(seed), 100):
        if step.copies_first:
            copied.add(step.copies)
        assert schedule.RESTORED.get(step.damage, "nothing") in copied | {"nothing"}
        copied.add(step.copies)
        assert step.trouble != "the store lies" or step.damage in schedule.WITH_A_LIE


def test_every_point_is_one_of_the_code() -> None:
    text = "\n".join(path.read_text() for path in Path(headrace.__path__[0]).rglob("*.py"))
    points = set(re.findall(r'reached\("([^"]+)"\)', text))
    points |= {f"committer {step}" for step in re.findall(r'observe\("([^"]+)"\)', text)}
    assert {*POINTS, *START_POINTS, *COMMITTER_POINTS} <= points
