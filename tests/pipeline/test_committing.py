"""Commits that fail, for a while or for good, and those that never return: no other sink waits for them."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import EndpointError, EndpointUnavailable, Terminal, UnexpectedFailure
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.testing.memory_sink import MemorySink, MemoryTarget
from tests.pipeline.coordinator_world import QUICK, Failing, World, rows_of, run_epochs, tried_ten_times
from tests.waiting import DEADLINE_SECONDS, wait_until


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_sink_that_cannot_commit_holds_up_no_other_and_names_itself(world: World) -> None:
    good, dead = Failing("good", world.good), Failing("dead", world.dead)
    good.commit_error = EndpointUnavailable("the table is locked")
    coordinator = world.coordinator(sinks=[good, dead])
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    wait_until(lambda: world.dead.rows == rows_of(0) and bool(coordinator.stuck))
    assert coordinator.stuck == {"good": "the table is locked"}
    assert world.good.rows == []
    good.commit_error = None
    coordinator.settle()
    assert world.good.rows == rows_of(0)
    assert coordinator.stuck == {}
    coordinator.close()


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EndpointError("the table was dropped"), "the table was dropped"),
        (KeyError("generation"), "KeyError: 'generation'"),
    ],
)
def test_a_commit_that_fails_for_good_holds_up_no_other_and_names_itself(
    world: World, error: Exception, said: str
) -> None:
    good, dead = Failing("good", world.good), Failing("dead", world.dead)
    good.commit_error = error
    coordinator = world.coordinator(sinks=[good, dead])
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    with pytest.raises(type(error)):
        coordinator.settle()
    coordinator.close()
    assert (world.good.rows, world.dead.rows) == ([], rows_of(0))
    assert RecoveryLog(world.store, "log").stuck() == {"good": said}
    again = world.coordinator(sinks=[good, dead])
    with pytest.raises(type(error)):
        again.start()
    assert RecoveryLog(world.store, "log").stuck() == {"good": said}
    good.commit_error = None
    run_epochs(world.coordinator(sinks=[good, dead]), 1, 1)
    assert world.good.rows == world.dead.rows == rows_of(0) + rows_of(1)


def test_what_fails_for_good_is_raised_though_another_one_is_away(world: World) -> None:
    good, dead = Failing("good", world.good), Failing("dead", world.dead)
    good.commit_error, dead.commit_error = EndpointUnavailable("away"), EndpointError("the table was dropped")
    coordinator = world.coordinator(sinks=[good, dead], retry_policy=tried_ten_times())
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    with pytest.raises(EndpointError):
        coordinator.settle()
    assert coordinator.stuck == {"good": "away", "dead": "the table was dropped"}
    coordinator.close()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_sink_that_cannot_be_started_holds_up_no_other_and_names_itself(
    world: World, is_first: bool
) -> None:
    good, dead = Failing("good", world.good), Failing("dead", world.dead)
    good.commit_error = dead.commit_error = EndpointUnavailable("away")
    coordinator = world.coordinator(sinks=[good, dead])
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    coordinator.close()
    good.commit_error = dead.commit_error = None
    away, other = (good, dead) if is_first else (dead, good)
    away.start_error = EndpointUnavailable("no broker answers")
    again = world.coordinator(sinks=[good, dead])
    with pytest.raises(EndpointUnavailable, match="no broker answers"):
        again.start()
    again.close()
    assert (other.target.rows, away.target.rows) == (rows_of(0), [])
    stuck = RecoveryLog(world.store, "log").stuck()
    assert stuck == {away.name: "it cannot be started: no broker answers"}
    away.start_error = None
    run_epochs(world.coordinator(sinks=[good, dead]), 1, 1)
    assert world.good.rows == world.dead.rows == rows_of(0) + rows_of(1)


class Hanging(MemorySink):
    """Its commit returns when it is let go."""

    def __init__(self, name: str, target: MemoryTarget) -> None:
        super().__init__(name, target)
        self.go_on = threading.Event()
        self.calls = 0

    def commit(self, epoch: int, handle: JsonObject) -> None:
        self.calls += 1
        assert self.go_on.wait(DEADLINE_SECONDS)
        super().commit(epoch, handle)


def test_a_sink_that_does_not_answer_holds_up_no_other_and_names_itself(world: World) -> None:
    good, dead = Hanging("good", world.good), MemorySink("dead", world.dead)
    coordinator = world.coordinator(sinks=[good, dead], retry_policy=replace(QUICK, answer_within=0.2))
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    wait_until(lambda: "committed dead" in world.steps)
    assert list(RecoveryLog(world.store, "log").stuck()) == ["good"]
    assert coordinator.stuck["good"].endswith("it had not answered for 0 s")
    assert not coordinator.is_committed()
    good.go_on.set()
    coordinator.settle()
    assert (world.good.rows, good.calls, coordinator.stuck) == (rows_of(0), 1, {})
    assert world.steps[-2:] == ["committed dead", "committed good"]
    coordinator.close()


def test_a_sink_that_never_answers_does_not_keep_the_others_from_being_closed(world: World) -> None:
    good, dead = Hanging("good", world.good), MemorySink("dead", world.dead)
    coordinator = world.coordinator(sinks=[good, dead], retry_policy=replace(QUICK, answer_within=0.2))
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    coordinator.close()
    wait_until(lambda: world.dead.rows == rows_of(0))
    with pytest.raises(UnexpectedFailure, match="epoch 0 is left to be committed by good"):
        coordinator.settle()
    good.go_on.set()


def test_a_commit_that_never_can_be_stops_the_materialization(world: World) -> None:
    good = Failing("good", world.good)
    good.commit_error = Terminal("the table was dropped")
    coordinator = world.coordinator(sinks=[good])
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    with pytest.raises(Terminal, match="dropped"):
        coordinator.run(1, {}, rows_of(1))
    coordinator.close()
    assert not RecoveryLog(world.store, "log").read().is_settled


def test_closing_leaves_a_stuck_commit_to_the_next_start(world: World) -> None:
    good = Failing("good", world.good)
    good.commit_error = EndpointUnavailable("away")
    coordinator = world.coordinator(sinks=[good])
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    wait_until(lambda: bool(coordinator.stuck))
    coordinator.close()
    assert world.good.rows == []
    successor = world.coordinator(sinks=[MemorySink("good", world.good)])
    successor.start()
    assert world.good.rows == rows_of(0)
    successor.close()
