from __future__ import annotations

from itertools import islice

import pytest

from tests.crash.ingest.random_faults import schedule
from tests.crash.ingest.random_faults.damage import DAMAGES
from tests.crash.ingest.random_faults.points import COMMITTER_POINTS, SERVER_POINTS
from tests.crash.ingest.random_faults.schedule import steps
from tests.crash.ingest.random_faults.troubles import TROUBLES


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


def test_the_points_are_found() -> None:
    assert {"wal synced", "object put", "commits answered", "term claimed"} <= set(SERVER_POINTS)
    assert {"committer committing", "committer answering"} <= set(COMMITTER_POINTS)
