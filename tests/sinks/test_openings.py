"""Who may take something back in a place that has only files."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import EndpointError, Fenced
from headrace.model.ownership import Mode, Owner
from headrace.objects import ObjectStore
from headrace.sinks.openings import Opening, Openings


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path.as_uri())


@pytest.fixture
def openings(store: ObjectStore) -> Openings:
    return Openings(store, "_openings", "orders")


def test_what_was_taken_back_stays_so_and_what_comes_after_counts() -> None:
    opening = Opening()
    assert opening.counts(0, 99)
    once = opening.rewound(7)
    assert [once.counts(0, 7), once.counts(0, 8), once.counts(1, 8)] == [True, False, True]
    twice = once.rewound(9)
    assert [twice.counts(0, 8), twice.counts(1, 9), twice.counts(1, 10), twice.counts(2, 10)] == [
        False,
        True,
        False,
        True,
    ]
    further = twice.rewound(3)
    assert [rewind.after for rewind in further.rewinds] == [3]
    assert [further.counts(generation, 4) for generation in range(4)] == [False, False, False, True]
    assert Opening.decode(further.number, further.encode()) == Opening(
        3, further.fence, further.generation, further.rewinds
    )


def test_only_who_started_last_takes_something_back(openings: Openings) -> None:
    first = openings.take(None, 1)
    second = openings.take(5, 2)
    with pytest.raises(Fenced):
        openings.rewind(first, 3)
    rewound = openings.rewind(second, 3)
    assert openings.last() == rewound
    assert openings.rewind(rewound, 3).generation == 2  # may be repeated
    with pytest.raises(Fenced):
        openings.rewind(second, 3)


def test_a_place_has_one_writer(store: ObjectStore) -> None:
    """Fences of two pipelines have nothing to do with each other."""
    Openings(store, "_openings", "orders").take(None, 1)  # of a version that did not say whose it is
    mine, other = (Openings(store, "_openings", "orders", writer) for writer in ("mine", "other"))
    mine.rewind(mine.take(5, 2), 3)
    for fence in (1, 9):
        with pytest.raises(EndpointError, match="is written by materialization 'mine'"):
            other.take(5, fence)
    assert mine.take(5, 3).writer == "mine"


def test_a_claim_stays_through_starts_and_rewinds(store: ObjectStore) -> None:
    mine = Openings(store, "_openings", "orders", "mine")
    owner = Owner("mine", "a lineage", ("k",), Mode.APPEND)
    opened = mine.claim(mine.start(None, 1), owner, adopts=False)
    assert mine.claim(opened, owner, adopts=False) == opened == mine.last()
    mine.rewind(mine.start(5, 2), 3)
    assert (mine.last().owner, mine.last().fence) == (owner, 2)
    with pytest.raises(Fenced):
        mine.claim(opened, replace(owner, lineage="another"), adopts=False)


def test_another_writer_takes_a_place_over_with_fences_of_his_own(store: ObjectStore) -> None:
    mine, other = (Openings(store, "_openings", "orders", writer) for writer in ("mine", "other"))
    mine.take(None, 7)
    unstarted = other.start(None, 2)
    assert (unstarted.number, mine.last().number) == (0, 1)
    owner = Owner("other", "a lineage", (), Mode.APPEND)
    with pytest.raises(EndpointError, match="is written by materialization 'mine'"):
        other.claim(unstarted, owner, adopts=False)
    assert other.claim(unstarted, owner, adopts=True) == Opening(2, 2, writer="other", owner=owner)
    assert other.start(0, 3).owner == owner
    with pytest.raises(EndpointError, match="is written by materialization 'other'"):
        mine.take(5, 8)


def test_a_start_of_an_older_coordinator_is_refused_unless_its_log_is_new(openings: Openings) -> None:
    openings.take(5, 2)
    with pytest.raises(Fenced):
        openings.take(5, 1)
    assert openings.take(None, 1).number == 2
    openings.take(None, sys.maxsize)  # for who wants all removed
    assert openings.take(5, 1).number == 4


def test_a_record_whose_answer_was_lost_is_known_again(
    openings: Openings, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ObjectStore.create

    def twice(self: ObjectStore, path: str, data: bytes, what: str) -> None:
        real(self, path, data, what)
        real(self, path, data, what)

    monkeypatch.setattr(ObjectStore, "create", twice)
    opened = openings.take(None, 1)
    assert openings.rewind(opened, 3).number == opened.number + 1 == 2


def test_old_records_are_removed_and_their_places_are_of_no_use(
    openings: Openings, store: ObjectStore
) -> None:
    first = openings.take(None, 1)
    for fence in range(2, 40):
        openings.take(0, fence)
    assert len(store.list("_openings", "look")) < 25
    with pytest.raises(Fenced):
        openings.rewind(first, -1)
    assert openings.last().rewinds == ()
