"""Invariants 1 and 2 of docs/invariants.md: what must hold before and after a decision."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import EndpointError, EndpointUnavailable, Fenced
from headrace.objects import ObjectExists
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.sinks.contract import Sink
from headrace.testing.memory_sink import MemorySink
from tests.pipeline.coordinator_world import Failing, World, rows_of, run_epochs


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("failure", ["the answer is lost", "somebody takes over"])
def test_nothing_is_aborted_once_the_epoch_may_be_decided(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """Invariant 1. The record is in the log although `decide` fails, so the next start commits the epoch."""
    sinks = [MemorySink("good", world.good), MemorySink("dead", world.dead)]
    coordinator = world.coordinator(sinks=sinks)
    coordinator.start()
    create = world.store.create

    def create_and_fail(path: str, data: bytes | memoryview, what: str) -> None:
        try:
            create(path, data, what)
        except ObjectExists:
            assert failure == "the answer is lost", "it is decided once more"
        if failure == "the answer is lost":
            coordinator.hurry()  # otherwise the decision would be retried until its deadline
            raise EndpointUnavailable(failure)
        monkeypatch.undo()
        RecoveryLog(world.store, "log").open()

    monkeypatch.setattr(world.store, "create", create_and_fail)
    with pytest.raises(EndpointUnavailable if failure == "the answer is lost" else Fenced):
        coordinator.run(0, {"offsets": 0}, rows_of(0))
    coordinator.close()
    monkeypatch.undo()
    assert world.good.committed == {}

    successor = world.coordinator(sinks=[MemorySink("good", world.good), MemorySink("dead", world.dead)])
    recovered = successor.start()
    successor.close()
    assert recovered.decision is not None
    assert (recovered.decision.epoch, recovered.is_settled) == (0, False)
    assert world.good.rows == world.dead.rows == rows_of(0)


def test_a_sink_that_is_fenced_off_aborts_nothing(world: World) -> None:
    """Invariant 1. A prepared epoch is left to the successor, which knows what is decided."""
    good, fenced = MemorySink("good", world.good), Failing("fenced", world.dead)
    coordinator = world.coordinator(sinks=[good, fenced])
    coordinator.start()
    fenced.prepare_error = Fenced("somebody took over")
    with pytest.raises(Fenced):
        coordinator.run(0, {"offsets": 0}, rows_of(0))
    coordinator.close()
    assert len(world.good.staged) == 1


def test_an_epoch_is_decided_only_when_all_sinks_have_committed_the_one_before(world: World) -> None:
    """Invariant 2. A start finishes only the last decision, so the one before it must be committed."""
    stuck = Failing("stuck", world.good)
    others: list[Sink] = [MemorySink("other", world.dead)]
    coordinator = world.coordinator(sinks=[stuck, *others])
    coordinator.start()
    stuck.commit_error = EndpointError("the target refuses it")
    coordinator.run(0, {"offsets": 0}, rows_of(0))
    with pytest.raises(EndpointError, match="the target refuses it"):
        coordinator.run(1, {"offsets": 1}, rows_of(1))
    coordinator.close()
    logged = RecoveryLog(world.store, "log").read()
    assert logged.decision is not None
    assert (logged.decision.epoch, logged.is_settled) == (0, False)

    stuck.commit_error = None
    run_epochs(world.coordinator(sinks=[stuck, *others]), 1, 1)
    assert world.good.rows == world.dead.rows == rows_of(0) + rows_of(1)
