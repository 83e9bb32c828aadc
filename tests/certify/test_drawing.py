from __future__ import annotations

import itertools
from pathlib import Path

from headrace.certify.drawing import drawn_rounds
from headrace.certify.feeds import CollectionFeed
from headrace.certify.lanes import Lane
from headrace.certify.scenarios import SCENARIOS
from headrace.certify.targets.sqlite import SqliteTarget
from headrace.ingest.iceberg.settings import embedded_catalog

Drawn = list[list[tuple[str, str, int, list[int]]]]


def drawn(folder: Path, seed: int, rounds: int = 30) -> Drawn:
    feed = CollectionFeed(embedded_catalog(folder))
    lanes = [Lane(feed, SqliteTarget(folder), f"-{number}") for number in range(3)]
    found = itertools.islice(drawn_rounds(lanes, SCENARIOS, seed, float("inf")), rounds)
    return [
        [(lane.name, one.name, one.writes, [arm.occurrence for arm in one.arms(lane)]) for lane, one in some]
        for some in found
    ]


def test_a_seed_draws_the_same_again(tmp_path: Path) -> None:
    assert drawn(tmp_path, 7) == drawn(tmp_path, 7)
    assert drawn(tmp_path, 7) != drawn(tmp_path, 8)


def test_points_are_in_epochs_that_there_are(tmp_path: Path) -> None:
    found = [one for some in drawn(tmp_path, 1) for one in some]
    assert {lane for lane, *_ in found} == {f"collection-sqlite-{number}" for number in range(3)}
    assert all(occurrence <= writes for _, _, writes, arms in found for occurrence in arms)
    assert any(occurrence > 1 for _, _, _, arms in found for occurrence in arms)
    assert any(len(some) < 3 for some in drawn(tmp_path, 1))
