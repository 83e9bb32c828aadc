"""Epochs through crashes at every step: each sink has each of them once, or none has it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ConfigError, EndpointUnavailable, Fenced, ProtocolError
from headrace.model.checkpoints import JsonObject
from headrace.pipeline.coordinator import Coordinator
from headrace.pipeline.recovery_log import RecoveryLog
from headrace.sinks.contract import Epoch
from headrace.testing.memory_sink import MemorySink, MemoryTarget
from tests.pipeline.coordinator_world import (
    QUICK,
    AuthoritativeSink,
    Crash,
    Failing,
    World,
    assert_exactly_once,
    rows_of,
    run_epochs,
    tried_ten_times,
)
from tests.waiting import DEADLINE_SECONDS, wait_until


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_an_epoch_passes_its_steps_in_order(world: World) -> None:
    run_epochs(world.coordinator(), 0, 0)
    assert world.steps == [
        "opened",
        "prepared good",
        "prepared dead",
        "prepared view",
        "decided",
        "committed good",
        "committed dead",
        "committed view",
    ]
    recovered = RecoveryLog(world.store, "log").read()
    assert recovered.decision is not None
    assert (recovered.decision.summary, recovered.is_settled) == ({"read": 2}, True)
    assert_exactly_once(world, 0)


STEPS_OF_TWO_EPOCHS = 1 + 2 * 7


@pytest.mark.parametrize("rewind", [0, 1, 2])
@pytest.mark.parametrize("step", range(STEPS_OF_TWO_EPOCHS))
def test_a_crash_after_any_step_neither_loses_nor_repeats(world: World, step: int, rewind: int) -> None:
    """And then again at every step of the recovery; Spark may replay epochs that were decided before."""
    run_epochs(world.coordinator(), 0, 0)
    seen = 0

    def crash(_: str) -> None:
        nonlocal seen
        seen += 1
        if seen > step:
            raise Crash

    with pytest.raises(Crash):
        run_epochs(world.coordinator(crash), 1, 2)
    decided = RecoveryLog(world.store, "log").read().decision
    assert decided is not None
    for again in range(8):
        seen, step = 0, again
        try:
            run_epochs(world.coordinator(crash), max(decided.epoch + 1 - rewind, 0), 2)
        except Crash:
            decided = RecoveryLog(world.store, "log").read().decision
            assert decided is not None
    run_epochs(world.coordinator(), max(decided.epoch + 1 - rewind, 0), 3)
    assert_exactly_once(world, 3)


def test_nothing_is_seen_before_the_decision(world: World) -> None:
    def look(step: str) -> None:
        if step.startswith("prepared"):
            assert world.good.committed == world.dead.committed == {}

    run_epochs(world.coordinator(look), 0, 0)


def test_when_one_cannot_prepare_all_that_is_prepared_is_aborted(world: World) -> None:
    good, dead = Failing("good", world.good), Failing("dead", world.dead)
    coordinator = world.coordinator(sinks=[good, dead])
    coordinator.start()
    dead.prepare_error = EndpointUnavailable("it is away")
    with pytest.raises(EndpointUnavailable):
        coordinator.run(0, {}, rows_of(0))
    assert world.steps == ["opened", "prepared good", "aborted good"]
    assert world.good.staged == {}
    dead.prepare_error = None
    assert coordinator.run(0, {}, rows_of(0))
    coordinator.settle()
    assert world.good.rows == world.dead.rows == rows_of(0)
    coordinator.close()


def test_counts_that_do_not_add_up_abort_the_epoch(world: World) -> None:
    def summarize() -> JsonObject:
        raise ProtocolError("read 3 rows, but good and dead are 2")

    coordinator = world.coordinator()
    coordinator.start()
    with pytest.raises(ProtocolError):
        coordinator.run(0, {}, rows_of(0), summarize)
    assert (world.good.staged, world.good.committed) == ({}, {})
    assert RecoveryLog(world.store, "log").read().decision is None
    coordinator.close()


def test_a_sink_that_is_fenced_off_while_it_prepares_leaves_order_to_who_took_over(world: World) -> None:
    good, dead = MemorySink("good", world.good), Failing("dead", world.dead)
    dead.prepare_error = Fenced("another one took over")
    coordinator = world.coordinator(sinks=[good, dead])
    coordinator.start()
    with pytest.raises(Fenced):
        coordinator.run(0, {}, rows_of(0))
    assert world.steps == ["opened", "prepared good"]
    coordinator.close()


def test_an_abort_that_fails_is_made_good_at_the_next_start(world: World) -> None:
    good, dead = Failing("good", world.good), Failing("dead", world.dead)
    coordinator = world.coordinator(sinks=[good, dead])
    coordinator.start()
    dead.prepare_error, good.abort_error = EndpointUnavailable("away"), EndpointUnavailable("away too")
    with pytest.raises(EndpointUnavailable, match=r"away$"):
        coordinator.run(0, {}, rows_of(0))
    coordinator.close()
    assert world.good.staged
    run_epochs(world.coordinator(sinks=[MemorySink("good", world.good)]), 0, 0)
    assert world.good.staged == {}
    assert world.good.rows == rows_of(0)


def test_an_abort_that_nobody_foresaw_neither_skips_the_others_nor_hides_the_cause(world: World) -> None:
    good, dead, last = (Failing(name, MemoryTarget()) for name in ("good", "dead", "last"))
    coordinator = world.coordinator(sinks=[good, dead, last])
    coordinator.start()
    good.abort_error, last.prepare_error = KeyError("folder"), EndpointUnavailable("away")
    with pytest.raises(EndpointUnavailable, match="away"):
        coordinator.run(0, {}, rows_of(0))
    coordinator.close()
    assert (len(good.target.staged), len(dead.target.staged)) == (1, 0)


def test_the_next_epoch_is_prepared_while_the_last_one_is_committed_and_decided_after_it(
    world: World,
) -> None:
    good = Failing("good", world.good)
    good.commit_error = EndpointUnavailable("slow")
    coordinator = world.coordinator(sinks=[good])
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    running = threading.Thread(target=coordinator.run, args=(1, {}, rows_of(1)))
    running.start()
    wait_until(lambda: world.steps.count("prepared good") == 2)
    assert world.steps.count("decided") == 1
    good.commit_error = None
    running.join(DEADLINE_SECONDS)
    assert not running.is_alive()
    coordinator.settle()
    assert world.good.rows == rows_of(0) + rows_of(1)
    coordinator.close()


def test_a_zombie_decides_nothing_and_aborts_nothing(world: World) -> None:
    zombie = world.coordinator(sinks=[MemorySink("good", world.good)])
    zombie.start()
    successor = world.coordinator(sinks=[MemorySink("good", world.good)])
    successor.start()
    with pytest.raises(Fenced):
        zombie.run(0, {}, [666])
    assert "aborted good" not in world.steps
    successor.run(0, {}, rows_of(0))
    successor.settle()
    assert world.good.rows == rows_of(0)
    zombie.close()
    successor.close()
    run_epochs(world.coordinator(sinks=[MemorySink("good", world.good)]), 1, 1)
    assert world.good.staged == {}, "what a zombie left is removed at the next start"


def test_a_decision_is_tried_again_and_nothing_is_aborted_if_it_stays_unknown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, failures = RecoveryLog.decide, [3]

    def flaky(self: RecoveryLog, decision: Any, plan: Any) -> None:
        failures[0] -= 1
        if failures[0] >= 0:
            raise EndpointUnavailable("the store is away")
        decide(self, decision, plan)

    monkeypatch.setattr(RecoveryLog, "decide", flaky)
    coordinator = world.coordinator(sinks=[MemorySink("good", world.good)], retry_policy=tried_ten_times())
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    failures[0] = 1_000_000
    with pytest.raises(EndpointUnavailable):
        coordinator.run(1, {}, rows_of(1))
    assert 1_000_000 - failures[0] == 10
    assert "aborted good" not in world.steps
    coordinator.close()
    assert world.good.rows == rows_of(0)


def test_an_epoch_out_of_turn_is_refused(world: World) -> None:
    coordinator = world.coordinator()
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    assert not coordinator.run(0, {}, [666])
    with pytest.raises(ConfigError, match="epoch 2 comes after epoch 0"):
        coordinator.run(2, {}, rows_of(2))
    coordinator.close()
    assert_exactly_once(world, 0)


def test_a_sink_is_removed_only_when_it_has_everything(world: World) -> None:
    good, dead = MemorySink("good", world.good), Failing("dead", world.dead)
    dead.commit_error = EndpointUnavailable("away")
    coordinator = world.coordinator(sinks=[good, dead])
    coordinator.start()
    coordinator.run(0, {}, rows_of(0))
    coordinator.close()
    with pytest.raises(ConfigError, match="epoch 0 was decided with the sinks dead"):
        world.coordinator(sinks=[good]).start()
    whole = world.coordinator(sinks=[good, MemorySink("dead", world.dead)])
    whole.start()
    whole.close()
    alone = world.coordinator(sinks=[good])
    alone.start()
    alone.close()


def test_two_sinks_of_one_name_are_refused(world: World) -> None:
    with pytest.raises(ConfigError, match="one name"):
        world.coordinator(sinks=[MemorySink("good", world.good)] * 2)


def test_one_who_was_replaced_does_not_touch_what_cannot_be_undone(world: World) -> None:
    zombie = world.coordinator()
    zombie.start()
    successor = world.coordinator()
    successor.start()
    with pytest.raises(Fenced):
        zombie.run(0, {}, rows_of(0))
    assert not world.view.committed
    successor.run(0, {}, rows_of(0))
    assert list(world.view.committed) == [0]


def test_the_log_is_moved_to_where_an_endpoint_stands(world: World) -> None:
    first = world.coordinator()
    first.start()
    for number in range(3):
        first.run(number, {"epoch": number}, rows_of(number))
    first.close()
    second = world.coordinator()
    second.start()
    second.move_to(0, {"epoch": 0}, "the endpoint was restored", {"shards": 2})
    assert not second.is_decided(1)
    assert second.run(1, {"epoch": 1}, rows_of(1))
    second.close()
    recovered = RecoveryLog(world.store, "log").read()
    assert recovered.decision is not None
    assert (recovered.decision.epoch, recovered.plan) == (1, {"shards": 2})


def test_a_way_back_is_in_the_log_until_somebody_says_that_it_was_gone(world: World) -> None:
    run_epochs(world.coordinator(), 0, 2)
    moved = world.coordinator()
    assert not moved.start().rewinds
    moved.move_to(0, {"epoch": 0}, "the endpoint was restored", {}, rewinds=True)
    moved.close()
    for is_gone in (False, True):
        log = RecoveryLog(world.store, "log")
        again = Coordinator(log, world.sinks(), retry_policy=QUICK)
        recovered = again.start()
        assert (recovered.went_back, recovered.rewinds) == (True, True)
        assert recovered.runtime_checkpoint == {"epoch": 0}
        if is_gone:
            log.settle()
        again.close()
    last = world.coordinator()
    recovered = last.start()
    assert (recovered.went_back, recovered.rewinds) == (True, False)
    last.run(1, {"epoch": 1}, rows_of(1))
    last.close()
    assert not RecoveryLog(world.store, "log").read().went_back


def test_what_a_sink_asked_to_keep_outlives_a_move(world: World) -> None:
    run_epochs(world.coordinator(), 0, 2)
    moved = world.coordinator()
    moved.start()
    moved.move_to(0, {"epoch": 0}, "the endpoint was restored", {})
    moved.close()
    view = AuthoritativeSink("view", world.view)
    again = world.coordinator(sinks=[view, MemorySink("good", world.good), MemorySink("dead", world.dead)])
    again.start()
    again.close()
    assert view.started_with == {"prepared": 2}


def test_a_commit_that_is_done_is_noted_when_there_is_time(world: World) -> None:
    good = Failing("good", world.good)
    good.commit_error = EndpointUnavailable("away")
    coordinator = world.coordinator(sinks=[good])
    coordinator.start()
    assert coordinator.is_committed()
    coordinator.run(0, {}, rows_of(0))
    wait_until(lambda: bool(coordinator.stuck))
    coordinator.note_committed()
    assert not coordinator.is_committed()
    assert not RecoveryLog(world.store, "log").read().is_settled
    good.commit_error = None
    coordinator.settle()
    coordinator.note_committed()
    assert coordinator.is_committed()
    assert RecoveryLog(world.store, "log").read().is_settled
    coordinator.run(1, {}, rows_of(1))
    coordinator.close()
    assert world.good.rows == rows_of(0) + rows_of(1)


def test_a_sink_is_told_whether_the_epoch_before_is_committed(world: World) -> None:
    told: list[bool] = []

    class Asking(Failing):
        def prepare(self, epoch: Epoch, rows: Any) -> JsonObject:
            told.append(epoch.is_previous_committed())
            if epoch.number:
                self.commit_error = None
            epoch.wait_for_previous()
            told.append(epoch.is_previous_committed())
            return super().prepare(epoch, rows)

    good = Asking("good", world.good)
    good.commit_error = EndpointUnavailable("slow")
    coordinator = world.coordinator(sinks=[good])
    coordinator.start()
    for number in (0, 1):
        coordinator.run(number, {}, rows_of(number))
    coordinator.close()
    assert told == [True, True, False, True]
