"""The process that commits dies of one collection: that one is found, and the others go on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.errors import EndpointUnavailable
from headrace.ingest.engine import Engine
from headrace.ingest.iceberg.errors import CommitterDied, CommitterKilled, CommitterSilent
from headrace.ingest.iceberg.jobs import CommitJob
from headrace.ingest.quarantine.stuck import StuckLimits
from headrace.model.tiers import Tier
from headrace.wal.batches import index_writes
from headrace.wal.segments import map_segment
from tests.ingest.support import FakeIceberg, running_engine, write_all
from tests.waiting import wait_until

NAMES = ["a", "b", "c", "d", "e"]
_LIMITS = StuckLimits(refusals=10**9, failures=10**9, deaths=3, log_share=1e9)


def has(name: str, lsn: int = 0) -> object:
    """Returns what says of a job whether it has a collection, and a write of it if one is given."""

    def found(job: CommitJob) -> bool:
        if name not in {one.name for one in job.collections}:
            return False
        parts = [map_segment(part.path)[: part.length] for part in job.segments]
        writes = [one.writes for one in index_writes(parts).get(name, [])]
        return not lsn or any(one.first_lsn <= lsn <= one.last_lsn for one in writes)

    return found


def test_the_culprit_is_found_by_halves_and_the_others_are_committed(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    iceberg.hold()
    with running_engine(tmp_path, stuck=_LIMITS) as engine:
        lsns = {name: write_all(engine, 1, 2, collection=name, level=Tier.OBJECT_STORAGE) for name in NAMES}
        iceberg.deadly = has("d")  # type: ignore[assignment]
        iceberg.let_go()
        wait_until(lambda: engine.quarantine.names() == ["d"], "a quarantine")
        for name in NAMES:
            if name != "d":
                wait_until(lambda name=name: engine.watermarks(name)["COMMITTED"] >= lsns[name][-1])  # type: ignore[misc]
        assert "3 times on it alone" in engine.quarantine.listed()[0].reason
        iceberg.deadly = lambda _job: False
        engine.quarantine_calls.release("d", 60)
    assert iceberg.lsns == lsns


def test_what_comes_before_the_deadly_write_is_committed(tmp_path: Path, iceberg: FakeIceberg) -> None:
    iceberg.hold()
    with running_engine(tmp_path, stuck=_LIMITS) as engine:
        lsns = [
            lsn
            for number in range(9)
            for lsn in write_all(engine, number, collection="a", level=Tier.OBJECT_STORAGE)
        ]
        iceberg.deadly = has("a", lsns[6])  # type: ignore[assignment]
        iceberg.let_go()
        wait_until(lambda: engine.quarantine.names() == ["a"], "a quarantine")
        assert iceberg.lsns["a"] == lsns[:6]


def test_kills_that_are_over_when_it_is_tried_again_blame_nobody(
    tmp_path: Path, iceberg: FakeIceberg
) -> None:
    """As an operator kills it, or the kernel for the sake of another process."""
    kills: Counter[frozenset[str]] = Counter()

    def three_times_of_four(job: CommitJob) -> bool:
        names = frozenset(one.name for one in job.collections)
        kills[names] += 1
        return kills[names] % 4 != 0

    with running_engine(tmp_path, stuck=StuckLimits(deaths=4)) as engine:
        iceberg.deadly = three_times_of_four
        for number in range(10):
            for name in NAMES:
                write_all(engine, number, collection=name, level=Tier.OBJECT_STORAGE)
        engine.flush(Tier.COMMITTED, 60)
        assert kills.total() > 10
        assert engine.quarantine.names() == []


@pytest.mark.parametrize("idle", [[], ["b"]], ids=["alone", "beside one without writes"])
def test_kills_from_outside_do_not_blame_the_only_collection_that_is_written(
    tmp_path: Path, iceberg: FakeIceberg, idle: list[str]
) -> None:
    """Nothing tells whether the process dies of it, and nobody else waits for it."""
    iceberg.death = CommitterKilled("it ended with -9")
    with running_engine(tmp_path, stuck=StuckLimits(deaths=2)) as engine:
        for name in idle:
            write_all(engine, 0, collection=name, level=Tier.COMMITTED)
        iceberg.deadly = lambda _job: True
        before = len(iceberg.jobs)
        lsns = write_all(engine, 1, 2, collection="a", level=Tier.OBJECT_STORAGE)
        wait_until(lambda: len(iceberg.jobs) > before + 20 or engine.quarantine.names())
        assert engine.quarantine.names() == []
        assert "it ended with -9" in str(engine.health()["problems"])
        iceberg.deadly = lambda _job: False
        engine.flush(Tier.COMMITTED, 60)
    assert iceberg.lsns["a"] == lsns


@pytest.mark.parametrize("death", [CommitterKilled, CommitterSilent])
def test_one_that_is_killed_each_time_and_others_are_not_is_quarantined(
    tmp_path: Path, iceberg: FakeIceberg, death: type[CommitterDied]
) -> None:
    """As the kernel does that has too little memory for it."""
    iceberg.death = death("no answer")
    iceberg.deadly = has("d")  # type: ignore[assignment]

    def deaths() -> int:
        return sum({one.name for one in job.collections} == {"d"} for job in list(iceberg.jobs))

    with running_engine(tmp_path, stuck=_LIMITS) as engine:
        write_all(engine, 1, collection="d", level=Tier.OBJECT_STORAGE)
        for number in range(_LIMITS.deaths):
            assert engine.quarantine.names() == []
            before = deaths()
            wait_until(lambda before=before: deaths() > before + 1, "a death after the last commit")  # type: ignore[misc]
            write_all(engine, number, collection="a", level=Tier.COMMITTED)
        wait_until(lambda: engine.quarantine.names() == ["d"], "a quarantine")
        assert "3 times on it alone" in engine.quarantine.listed()[0].reason


def test_a_commit_that_lands_before_the_process_is_killed_is_no_evidence_against_another_collection(
    tmp_path: Path, iceberg: FakeIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.death = CommitterKilled("it ended with -9")
    iceberg.deadly = has("d")  # type: ignore[assignment]
    commit = iceberg.commit

    def land_and_be_killed(job: CommitJob, timeout: float) -> NoReturn:
        commit(job, timeout)
        raise iceberg.death

    with running_engine(tmp_path, stuck=_LIMITS) as engine:
        monkeypatch.setattr(iceberg, "commit", land_and_be_killed)
        write_all(engine, 1, collection="d", level=Tier.OBJECT_STORAGE)
        for number in range(3 * _LIMITS.deaths):
            write_all(engine, number, collection="a", level=Tier.COMMITTED)
            before = len(iceberg.jobs)
            wait_until(lambda before=before: len(iceberg.jobs) > before + 1 or engine.quarantine.names())  # type: ignore[misc]
        assert engine.quarantine.names() == []
        monkeypatch.setattr(iceberg, "commit", commit)


def await_failures(engine: Engine, more: int) -> None:
    """Has commits tried without the pauses between them, which grow."""
    wanted = engine.commit_failures + more

    def have_failed() -> bool:
        engine._commits.commit_now()
        return engine.commit_failures >= wanted

    wait_until(have_failed, f"{more} commits that fail")


@pytest.mark.parametrize("names", [["a"], NAMES], ids=["one", "several"])
def test_a_process_that_dies_of_everything_blames_nobody(
    tmp_path: Path, iceberg: FakeIceberg, names: list[str]
) -> None:
    """It does not even say how far the tables are."""
    with running_engine(tmp_path, stuck=StuckLimits(1, 1, 1, 1e-9)) as engine:
        for name in names:
            write_all(engine, 1, collection=name, level=Tier.COMMITTED)
        iceberg.problem = CommitterDied("it ended with -11")
        for name in names:
            write_all(engine, 2, collection=name, level=Tier.OBJECT_STORAGE)
        await_failures(engine, 4)
        assert engine.quarantine.names() == []
        iceberg.problem = EndpointUnavailable("the catalog is away")
        await_failures(engine, 4)
        assert engine.quarantine.names() == []


def test_a_process_that_dies_of_every_collection_blames_none(tmp_path: Path, iceberg: FakeIceberg) -> None:
    with running_engine(tmp_path, stuck=StuckLimits(deaths=2)) as engine:
        iceberg.hold()
        for name in NAMES:
            write_all(engine, 1, collection=name, level=Tier.OBJECT_STORAGE)
        iceberg.deadly = lambda _job: True
        iceberg.let_go()
        before = len(iceberg.jobs)
        wait_until(lambda: len(iceberg.jobs) > before + 100)
        assert engine.quarantine.names() == []
