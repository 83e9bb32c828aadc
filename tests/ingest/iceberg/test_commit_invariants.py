"""Invariant 11 of docs/invariants.md: a refused commit to a collection's table stays undecided."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from headrace.ingest.iceberg.errors import CommitConflict
from tests.ingest.iceberg.scenario import Scenario


def test_a_refused_commit_stays_undecided_until_main_moves(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 11. A proxy sent the request twice: one copy was refused and the other is still on its way.

    While main is still at the commit's parent, that copy can land, so nothing that it refers to may be
    removed.
    """
    scenario.write_segment()
    do_commit = Table._do_commit
    on_their_way: list[tuple[Any, ...]] = []

    def be_refused(self: Table, *args: Any) -> None:
        on_their_way.append((self, *args))
        raise CommitFailedException("refused")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", be_refused)
        outcome = scenario.committer().commit(scenario.job())["orders"]
    assert isinstance(outcome, CommitConflict)

    do_commit(*on_their_way[0])
    scenario.assert_exactly_once()
    for other in on_their_way[1:]:
        with pytest.raises(CommitFailedException):
            do_commit(*other)
    scenario.commit()
    scenario.assert_exactly_once()


def test_a_refused_commit_leaves_nothing_once_main_has_moved(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 11. When the next attempt lands, the refused one cannot, and its manifests are removed."""
    scenario.write_segment()
    do_commit = Table._do_commit
    refused: list[tuple[Any, ...]] = []

    def refuse_the_first(self: Table, *args: Any) -> None:
        if not refused:
            refused.append((self, *args))
            raise CommitFailedException("refused")
        do_commit(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", refuse_the_first)
        scenario.commit()
    with pytest.raises(CommitFailedException):
        do_commit(*refused[0])
    scenario.assert_exactly_once()
    scenario.assert_no_litter()


def test_a_refusal_of_a_commit_that_landed_changes_nothing(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Invariant 11. The refused copy came second: main was moved by the first copy of the same commit."""
    scenario.write_segment()
    do_commit = Table._do_commit

    def land_and_be_refused(self: Table, *args: Any) -> None:
        do_commit(self, *args)
        raise CommitFailedException("answer to the second copy")

    with monkeypatch.context() as patch:
        patch.setattr(Table, "_do_commit", land_and_be_refused)
        committed = scenario.commit()
    assert committed.lsn == scenario.last_lsn
    assert len(scenario.table().snapshots()) == 1
    scenario.assert_exactly_once()
    scenario.assert_no_litter()
